"""The files of /v1/files and of batches: their records in Redis, their bytes in the storage under the same ids."""

import contextlib
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

import msgspec
import redis

from api.batch.storage import Storage, StorageUnavailable
from worker.protocol import keys
from worker.protocol.lua import script_text

Purpose = Literal["batch", "batch_output"]
Order = Literal["asc", "desc"]

ABANDONED_S = 600.0  # an upload of which nothing was heard for so long is dead
_HELD_AGAIN_S = 60.0  # an expired file that is held is looked at again after so long
_MANY = 1000  # records read, or files deleted, at a time
_ID = re.compile(r"file-[0-9a-f]{32}")
_VERBS = ("keep_file", "hold_file", "drop_file", "doom_files")


class FileRecord(msgspec.Struct, frozen=True):
    """What is known of a file. `bytes` is its size; the times are seconds since 1970."""

    id: str
    tenant: str
    filename: str  # as its sender calls it: for display, never a path
    purpose: Purpose
    bytes: int
    created_at: int
    expires_at: int | None = None
    status: str = "processed"


@dataclass(frozen=True)
class FilePage:
    data: list[FileRecord]
    has_more: bool


class NoSuchFile(Exception):
    """The file after which a page was asked for is not there."""


def mint_file_id() -> str:
    return "file-" + secrets.token_hex(16)


# Under names, for the class below has a method called list.
Ids = list[str]
_Rows = list[bytes]
_Arguments = list[bytes | str | int]
_MaybeRows = list[bytes | None]
_Records = list[FileRecord]
_decode = msgspec.json.Decoder(FileRecord).decode


class FileBook:
    """All files of one pool. Another tenant's file is as one that is not there, and so is one past its time.

    Every method may raise redis.RedisError.
    """

    def __init__(self, client: redis.Redis, pool: str, storage: Storage) -> None:
        self._redis = client
        self._prefix = keys.prefix(pool)
        self._storage = storage
        self._scripts = {verb: client.register_script(script_text(verb)) for verb in _VERBS}

    def begin(self, file_id: str) -> None:
        """An upload is coming: to be said before its first byte is stored, so that a sweep finds what it leaves."""
        self._redis.zadd(self._prefix + "files:uploading", {file_id: time.time()})

    def go_on(self, file_id: str) -> None:
        """The upload is alive: to be said every minute or so."""
        self._redis.zadd(self._prefix + "files:uploading", {file_id: time.time()}, xx=True)

    def abandon(self, file_id: str) -> None:
        """The upload failed, and left nothing in the storage."""
        self._redis.zrem(self._prefix + "files:uploading", file_id)

    def admit(self, record: FileRecord, max_tenant_bytes: int) -> Literal["kept", "full", "lost"]:
        """Keep an upload whose bytes are stored. "lost": it was silent for so long that it was taken for dead."""
        return self._keep(record, str(max_tenant_bytes))

    def add(self, record: FileRecord) -> None:
        """Keep a file made here, whose bytes are stored, however much its tenant has. May be repeated."""
        self._keep(record, "")

    def get(self, tenant: str, file_id: str) -> FileRecord | None:
        found = self._load([file_id]) if _ID.fullmatch(file_id) else []
        return next((record for record in found if record.tenant == tenant and not _is_over(record)), None)

    def list(self, tenant: str, after: str | None, limit: int, order: Order, purpose: str | None = None) -> FilePage:
        """The files that follow `after` in the order of their creation, or from the first. Raises NoSuchFile."""
        index, is_descending = f"{self._prefix}files:of:{tenant}", order == "desc"
        start = 0 if after is None else 1 + self._rank(index, after, is_descending)
        found: _Records = []
        while len(found) <= limit:
            ids = cast(_Rows, self._redis.zrange(index, start, start + _MANY - 1, desc=is_descending))
            records = self._load(file_id.decode() for file_id in ids)
            found += [record for record in records if purpose in (None, record.purpose) and not _is_over(record)]
            start += _MANY
            if len(ids) < _MANY:
                break
        return FilePage(found[:limit], len(found) > limit)

    def hold(self, tenant: str, file_id: str, holder: str, until_s: float) -> FileRecord | None:
        """Keep a file from being deleted and from expiring, until it is released or `until_s`. May be repeated."""
        if not _ID.fullmatch(file_id):
            return None
        record = self._scripts["hold_file"](keys=[self._prefix], args=[file_id, tenant, holder, until_s])
        return None if record is None else _decode(cast(bytes, record))

    def release(self, file_id: str, holder: str) -> None:
        self._redis.zrem(f"{self._prefix}file_holds:{file_id}", holder)

    def delete(self, tenant: str, file_id: str) -> Literal["dropped", "held", "unknown"]:
        """Where the storage is away, the bytes go with a later sweep."""
        return self._drop(tenant, file_id, time.time()) if _ID.fullmatch(file_id) else "unknown"

    def expire_due(self, now_s: float) -> Ids:
        """Delete files whose time is over, except those that are held. Their ids."""
        index = self._prefix + "files:expiring"
        due = cast(_Rows, self._redis.zrangebyscore(index, "-inf", now_s, start=0, num=_MANY))
        expired = []
        for record in self._load(file_id.decode() for file_id in due):
            if self._drop(record.tenant, record.id, now_s) == "held":
                self._redis.zadd(index, {record.id: now_s + _HELD_AGAIN_S}, xx=True)
            else:
                expired.append(record.id)
        return expired

    def sweep(self, now_s: float) -> Ids:
        """Delete the bytes that uploads and deletions left which did not come to their end.

        The ids of their files. Raises StorageUnavailable.
        """
        args = [now_s - ABANDONED_S, now_s, _MANY]
        doomed = cast(_Rows, self._scripts["doom_files"](keys=[self._prefix], args=args))
        ids = [file_id.decode() for file_id in doomed]
        for file_id in ids:
            self._delete_bytes(file_id)
        return ids

    def used_bytes(self, tenant: str) -> int:
        used = cast(bytes | None, self._redis.hget(self._prefix + "files:bytes", tenant))
        return int(used or 0)

    def _keep(self, record: FileRecord, max_tenant_bytes: str) -> Literal["kept", "full", "lost"]:
        encoded, place = msgspec.json.encode(record), int(time.time() * 1e6)
        expires_at = "" if record.expires_at is None else record.expires_at
        args: _Arguments = [record.id, record.tenant, encoded, record.bytes, place, expires_at, max_tenant_bytes]
        word = cast(bytes, self._scripts["keep_file"](keys=[self._prefix], args=args))
        return cast(Literal["kept", "full", "lost"], word.decode())

    def _drop(self, tenant: str, file_id: str, now_s: float) -> Literal["dropped", "held", "unknown"]:
        word = cast(bytes, self._scripts["drop_file"](keys=[self._prefix], args=[file_id, tenant, now_s])).decode()
        if word == "dropped":
            with contextlib.suppress(StorageUnavailable):
                self._delete_bytes(file_id)
        return cast(Literal["dropped", "held", "unknown"], word)

    def _delete_bytes(self, file_id: str) -> None:
        self._storage.delete(file_id)
        self._storage.delete_unfinished(file_id)
        self._redis.zrem(self._prefix + "files:doomed", file_id)

    def _rank(self, index: str, file_id: str, is_descending: bool) -> int:
        rank = self._redis.zrevrank(index, file_id) if is_descending else self._redis.zrank(index, file_id)
        if rank is None:
            raise NoSuchFile(file_id)
        return cast(int, rank)

    def _load(self, file_ids: Iterable[str]) -> _Records:
        names = [f"{self._prefix}file:{file_id}" for file_id in file_ids]
        found = cast(_MaybeRows, self._redis.mget(names)) if names else []
        return [_decode(record) for record in found if record is not None]


def _is_over(record: FileRecord) -> bool:
    return record.expires_at is not None and record.expires_at <= time.time()
