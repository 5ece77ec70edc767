"""Where the bytes of files and batches lie: a folder or any other place fsspec can reach, under names of our own."""

import contextlib
import io
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import get_protocol

from worker.protocol.configuration import BadSetting, data_folder

BLOCK_SIZE = 8 * 1024 * 1024  # bytes of an object that a remote place is sent or asked for at once
READ_SIZE = 256 * 1024  # bytes
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}(?:/[a-z0-9][a-z0-9_-]{0,99})?")
_UNFINISHED = "_unfinished"  # a folder that no name can lead to


class StorageUnavailable(Exception):
    """The storage did not do what it was asked; the cause is what fsspec raised."""


class _Settings(Protocol):
    @property
    def storage(self) -> str: ...
    @property
    def data(self) -> str: ...


def open_storage(settings: _Settings, pool: str) -> "Storage":
    """The storage of one model's pool; nothing is touched yet. Raises BadSetting for a kind of place not to be had."""
    location = settings.storage
    if "://" not in location:
        chosen = Path(location).expanduser() if location else _default_folder(settings.data)
        location = chosen.absolute().as_uri()
    protocol = get_protocol(location)
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise BadSetting(f"HEADRACE_STORAGE: {protocol}:// needs a package that is not here. {error}.") from error
    except ValueError as error:  # the URL itself may hold a password, so it is not repeated
        raise BadSetting(f"HEADRACE_STORAGE: {protocol}:// is no kind of storage that fsspec knows") from error
    return Storage(location, pool)


def _default_folder(data: str) -> Path:
    return data_folder(data, os.environ.get("XDG_DATA_HOME")) / "files"


class Storage:
    """Objects by name, written as a whole or not at all.

    A name is made of small letters, digits, dashes and underscores, with at most one slash; another raises ValueError.
    Whatever goes wrong is StorageUnavailable, but FileNotFoundError where an object is asked for that is not there.
    Safe to share between threads and to make before a fork.
    """

    def __init__(self, url: str, pool: str) -> None:
        self._url = url
        self._folder = "pool-" + quote(pool, safe="")
        self._place: tuple[int, Any, str] | None = None

    def begin(self, name: str) -> "Writing":
        """A new object, to be committed or abandoned."""
        fs, path = self._at(name)
        with _guarded("write to", may_be_missing=False):
            unfinished = self._unfinished(name.replace("/", ".") + "." + secrets.token_hex(8))
            return Writing(fs, unfinished, path)

    @contextmanager
    def write(self, name: str) -> Iterator["Writing"]:
        """A new object, there once the block is left; an error in it leaves nothing. One of that name is replaced."""
        writing = self.begin(name)
        try:
            yield writing
            writing.commit()
        except BaseException:
            writing.abandon()
            raise

    def open(self, name: str) -> BinaryIO:
        """To read from, and to seek in."""
        fs, path = self._at(name)
        with _guarded("open an object of"):
            return io.BufferedReader(_Reading(fs.open(path, "rb", block_size=BLOCK_SIZE)), READ_SIZE)

    def size(self, name: str) -> int:
        """Bytes."""
        fs, path = self._at(name)
        with _guarded("look into"):
            return int(fs.size(path))

    def exists(self, name: str) -> bool:
        fs, path = self._at(name)
        with _guarded("look into"):
            return bool(fs.exists(path))

    def delete(self, *names: str) -> None:
        """One that is not there is gone already."""
        for name in names:
            fs, path = self._at(name)
            with _guarded("delete from"), contextlib.suppress(FileNotFoundError):
                fs.rm_file(path)

    def delete_all(self, folder: str) -> None:
        """All objects named ``folder/...``, finished or not."""
        self.delete_unfinished(folder)
        fs, path = self._at(folder)
        with _guarded("delete from"), contextlib.suppress(FileNotFoundError):
            fs.rm(path, recursive=True)

    def delete_unfinished(self, name: str) -> None:
        """What writers of the object, or of the objects in a folder, left when they were killed.

        One that is still at work will fail to commit.
        """
        fs, _ = self._at(name)
        with _guarded("delete from"), contextlib.suppress(FileNotFoundError):
            for path in fs.ls(self._unfinished(""), detail=False):
                if path.rpartition("/")[2].startswith(name.replace("/", ".") + "."):
                    with contextlib.suppress(FileNotFoundError):
                        fs.rm_file(path)

    @property
    def is_local(self) -> bool:
        """Whether reading here and there costs next to nothing."""
        return isinstance(self._opened()[0], LocalFileSystem)

    def _at(self, name: str) -> tuple[Any, str]:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:200]!r} is no name of a stored object")
        fs, root = self._opened()
        return fs, f"{root}/{name}"

    def _unfinished(self, name: str) -> str:
        return f"{self._opened()[1]}/{_UNFINISHED}/{name}".rstrip("/")

    def _opened(self) -> tuple[Any, str]:
        """fsspec's file system, one for each process: many of them do not survive a fork."""
        if self._place is None or self._place[0] != os.getpid():
            with _guarded("reach", may_be_missing=False):
                # What others write must be seen, so nothing may be remembered of what is there.
                fs, root = url_to_fs(self._url, skip_instance_cache=True, use_listings_cache=False)
            self._place = (os.getpid(), fs, f"{root.rstrip('/')}/{self._folder}")
        return self._place[1:]


class Writing:
    """An object in the making, under a name of its own. `commit` or `abandon` must end it."""

    def __init__(self, fs: Any, unfinished: str, path: str) -> None:
        self._fs = fs
        self._unfinished = unfinished
        self._path = path
        self._file = _in_its_folder(fs, unfinished, lambda: fs.open(unfinished, "wb", block_size=BLOCK_SIZE))

    def write(self, data: bytes) -> int:
        with _guarded("write to", may_be_missing=False):
            return int(self._file.write(data))

    def commit(self) -> None:
        """From here on it is there, after a power cut too."""
        with _guarded("write to", may_be_missing=False):
            if isinstance(self._fs, LocalFileSystem):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                _in_its_folder(self._fs, self._path, lambda: os.replace(self._unfinished, self._path))
                _sync_folder(os.path.dirname(self._path))
            else:
                self._file.close()
                _in_its_folder(self._fs, self._path, lambda: self._fs.cp_file(self._unfinished, self._path))
                self._fs.rm_file(self._unfinished)

    def abandon(self) -> None:
        """Leaves nothing, as far as the storage can be reached."""
        for step in (self._file.close, lambda: self._fs.rm_file(self._unfinished)):
            with contextlib.suppress(Exception):
                step()


class _Reading(io.RawIOBase):
    """What fsspec opened, with one error for all of its own."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with _guarded("read from"):
            data: bytes = self._file.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with _guarded("read from"):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            super().close()
            with contextlib.suppress(Exception):
                self._file.close()


@contextmanager
def _guarded(deed: str, *, may_be_missing: bool = True) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if isinstance(error, FileNotFoundError) and may_be_missing:
            raise
        raise StorageUnavailable(f"cannot {deed} the storage: {error}") from error


def _in_its_folder(fs: Any, path: str, make: Any) -> Any:
    """What `make` makes at `path`. Object stores know no folders, and others want them to be made first."""
    try:
        return make()
    except FileNotFoundError:
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        return make()


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
