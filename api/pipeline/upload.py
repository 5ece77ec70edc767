"""An upload to /v1/files: its form is read while the file in it goes to the storage."""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import redis

from api.batch.files import FileBook, FileRecord, mint_file_id
from api.batch.storage import Storage, StorageUnavailable, Writing
from api.errors import CLOSE, ApiError, bad_request, unavailable
from api.pipeline.body import body_pieces, discard_body
from api.pipeline.multipart import OVERHEAD, Field, FileBegins, form_parts
from api.pipeline.storage_threads import StorageThreads
from api.settings import ApiSettings

FILE, PURPOSE = "file", "purpose"
ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"
SHORTEST_LIFE_S, LONGEST_LIFE_S = 3600, 30 * 86400
DEFAULT_LIFE_S = 30 * 86400  # of a batch's input file, as OpenAI's
MAX_FILENAME = 255  # characters; the rest is cut off
_WRITE_SIZE = 256 * 1024  # bytes written at a time
_HEARD_OF_S = 30.0


class Uploads:
    """Takes uploads, one for each process."""

    def __init__(self, book: FileBook, storage: Storage, threads: StorageThreads, settings: ApiSettings) -> None:
        self._book = book
        self._storage = storage
        self._threads = threads
        self._settings = settings

    def receive(self, environ: Mapping[str, Any], tenant: str) -> FileRecord:
        """Store the file of a WSGI request. Of one that is not kept, nothing is left.

        Raises ApiError, redis.RedisError, StorageUnavailable.
        """
        file = _IncomingFile(self._book, self._storage, self._threads)
        try:
            fields = self._read(environ, file, self._book.used_bytes(tenant))
            record = _record(file, tenant, fields)
            file.commit()
        except BaseException as error:
            file.abandon()
            self._end_after(error, environ)
            raise
        # Should the answer to this get lost, the file may be kept all the same; if it is not, the sweep finds it.
        verdict = self._book.admit(record, self._settings.storage_tenant_bytes)
        if verdict != "kept":
            file.abandon()
            raise self._no_room() if verdict == "full" else unavailable("The upload took too long to be stored.", 1.0)
        return record

    def _read(self, environ: Mapping[str, Any], file: "_IncomingFile", used_bytes: int) -> dict[str, str]:
        """The fields known here and, as FILE, the file's name."""
        max_bytes, timeout_s = self._settings.max_file_bytes + OVERHEAD, self._settings.body_timeout_s
        fields: dict[str, str] = {}
        is_ours = False
        for part in form_parts(body_pieces(environ, max_bytes, timeout_s), environ.get("CONTENT_TYPE", "")):
            if isinstance(part, Field):
                _take_field(fields, part)
            elif isinstance(part, FileBegins):
                is_ours = part.name == FILE
                if is_ours:
                    _put(fields, FILE, part.filename)
                    file.begin()
            elif is_ours:
                file.write(part)
                self._check_size(file.size, used_bytes)
        return fields

    def _check_size(self, size: int, used_bytes: int) -> None:
        limit = self._settings.max_file_bytes
        if size > limit:
            raise ApiError(413, f"The file is larger than {limit} bytes.", param=FILE, code="file_too_large")
        if used_bytes + size > self._settings.storage_tenant_bytes:
            raise self._no_room()

    def _no_room(self) -> ApiError:
        limit = self._settings.storage_tenant_bytes
        message = f"With this file your files would take more than {limit} bytes. Delete some that you need no more."
        return ApiError(413, message, param=FILE, code="storage_full")

    def _end_after(self, error: BaseException, environ: Mapping[str, Any]) -> None:
        """Errors that close the connection by themselves have read of the body what they wanted."""
        if isinstance(error, ApiError):
            if "Connection" in error.headers:
                return
            error.headers |= CLOSE
        if isinstance(error, Exception):
            discard_body(environ, self._settings.max_file_bytes)


class _IncomingFile:
    """The file on its way to the storage, which is asked in native threads: it may take its time."""

    def __init__(self, book: FileBook, storage: Storage, threads: StorageThreads) -> None:
        self.id = mint_file_id()
        self.size = 0  # bytes
        self._book = book
        self._storage = storage
        self._threads = threads
        self._writing: Writing | None = None
        self._unwritten = bytearray()
        self._heard_of_s = time.monotonic()

    def begin(self) -> None:
        self._book.begin(self.id)
        self._writing = self._threads.run(lambda: self._storage.begin(self.id))

    def write(self, data: bytes) -> None:
        self._unwritten += data
        self.size += len(data)
        if len(self._unwritten) >= _WRITE_SIZE:
            self._flush()
        if time.monotonic() - self._heard_of_s > _HEARD_OF_S:
            self._book.go_on(self.id)
            self._heard_of_s = time.monotonic()

    def commit(self) -> None:
        assert self._writing is not None
        self._flush()
        self._threads.run(self._writing.commit)

    def abandon(self) -> None:
        """What cannot be deleted now is left to the sweep."""
        if self._writing is None:
            return
        with contextlib.suppress(StorageUnavailable, redis.RedisError):
            self._threads.run(self._delete)
            self._book.abandon(self.id)

    def _flush(self) -> None:
        assert self._writing is not None
        writing, data = self._writing, bytes(self._unwritten)
        self._unwritten.clear()
        self._threads.run(lambda: writing.write(data))

    def _delete(self) -> None:
        assert self._writing is not None
        self._writing.abandon()
        self._storage.delete(self.id)
        self._storage.delete_unfinished(self.id)


def _take_field(fields: dict[str, str], field: Field) -> None:
    """Unknown ones are ignored, as everywhere."""
    if field.name == FILE:
        raise bad_request("'file' must be a file: its part of the form needs a filename.", FILE)
    if field.name in (PURPOSE, ANCHOR, SECONDS):
        _put(fields, field.name, field.value)
    if field.name == PURPOSE and field.value != "batch":
        raise bad_request(f"'purpose' must be batch; files for {field.value[:80]!r} are not served here.", PURPOSE)


def _put(fields: dict[str, str], name: str, value: str) -> None:
    if name in fields:
        raise bad_request(f"'{name}' is there more than once.", name)
    fields[name] = value


def _record(file: _IncomingFile, tenant: str, fields: Mapping[str, str]) -> FileRecord:
    for name in (FILE, PURPOSE):
        if name not in fields:
            raise bad_request(f"Missing required parameter: '{name}'.", name)
    if file.size == 0:
        raise bad_request("The file is empty.", FILE)
    now_s = int(time.time())
    return FileRecord(
        id=file.id,
        tenant=tenant,
        filename=fields[FILE][:MAX_FILENAME],
        purpose="batch",
        bytes=file.size,
        created_at=now_s,
        expires_at=now_s + _life_s(fields),
    )


def _life_s(fields: Mapping[str, str]) -> int:
    if ANCHOR not in fields and SECONDS not in fields:
        return DEFAULT_LIFE_S
    if fields.get(ANCHOR) != "created_at":
        raise bad_request(f"'{ANCHOR}' must be created_at.", ANCHOR)
    seconds = fields.get(SECONDS, "")
    is_number = seconds.isascii() and seconds.isdigit() and len(seconds) < 9
    if not (is_number and SHORTEST_LIFE_S <= int(seconds) <= LONGEST_LIFE_S):
        raise bad_request(f"'{SECONDS}' must be a number from {SHORTEST_LIFE_S} to {LONGEST_LIFE_S}.", SECONDS)
    return int(seconds)
