"""Lines of input files by where they lie. The order in which they are run is not that of the file."""

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from api.batch.plan import PlannedLine
from api.batch.storage import READ_SIZE, Storage

ReadLine = Callable[[PlannedLine], bytes]
_NUM_COPIES = 4


class InputCopies:
    """Reads from a local storage as it is. Of a file far away, where each line would be a request of its own, there is
    a copy on this machine's disk; it has no name, so a process that is killed leaves nothing.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def reader(self, file_id: str) -> Iterator[ReadLine]:
        """Raises StorageUnavailable, or FileNotFoundError when the file is gone."""
        if self._storage.is_local:
            with self._storage.open(file_id) as file:
                yield partial(_read, file)
        else:
            yield partial(_read_apart, self._copy_of(file_id))

    def _copy_of(self, file_id: str) -> "_Copy":
        with self._lock:
            if file_id not in self._copies:
                self._copies[file_id] = self._copied(file_id)
            self._copies.move_to_end(file_id)
            if len(self._copies) > _NUM_COPIES:
                self._copies.popitem(last=False)
            return self._copies[file_id]

    def _copied(self, file_id: str) -> "_Copy":
        with tempfile.TemporaryFile() as copy, self._storage.open(file_id) as file:
            shutil.copyfileobj(file, copy, READ_SIZE)
            copy.flush()
            return _Copy(os.dup(copy.fileno()))


class _Copy:
    """A file that is closed when nobody reads from it any more, which may be later than its place is given away."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)


def _read(file: BinaryIO, line: PlannedLine) -> bytes:
    file.seek(line.offset)
    return file.read(line.length)


def _read_apart(copy: _Copy, line: PlannedLine) -> bytes:
    """Other threads may read the same copy, so it has no place of its own."""
    return os.pread(copy.descriptor, line.length, line.offset)
