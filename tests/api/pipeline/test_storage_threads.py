"""Under gevent, places that fsspec reaches by an event loop of its own can be read and written."""

from pathlib import Path

from tests.api.pipeline.test_native_pool import run_patched

PROGRAM = """
import gevent, fsspec
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.local import LocalFileSystem
from api.batch.storage import Storage
from api.pipeline.storage_threads import StorageThreads

class Remote(AsyncFileSystemWrapper):
    protocol = "remote"
    def __init__(self, **options):
        super().__init__(LocalFileSystem(), asynchronous=False, **options)
    def open(self, *args, **options):
        return self.sync_fs.open(*args, **options)
    @classmethod
    def _strip_protocol(cls, path):
        return path.removeprefix("remote://")

fsspec.register_implementation("remote", Remote)
threads, storage = StorageThreads(2), Storage("remote://FOLDER", "m")

def keep(name):
    with storage.write(name) as writing:
        writing.write(b"x" * len(name))

def use(name):
    threads.run(lambda: keep(name))
    print(threads.run(lambda: storage.size(name)), threads.run(lambda: storage.exists(name)))
    threads.run(lambda: storage.delete(name))
    print(threads.run(lambda: storage.exists(name)))

for call in [gevent.spawn(use, "one"), gevent.spawn(use, "three")]:
    call.get(timeout=60)
"""


def test_an_event_loop_of_fsspecs_own_goes_on_beside_gevents(tmp_path: Path) -> None:
    printed = run_patched(PROGRAM.replace("FOLDER", str(tmp_path)))

    assert sorted(printed.splitlines()) == ["3 True", "5 True", "False", "False"]
