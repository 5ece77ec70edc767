"""The whole of Headrace on free ports for a benchmark, in a folder that goes away with it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ops.broker import broker_command
from ops.die_with_parent import command_dying_with_parent
from ops.ports import free_port, is_listening
from ops.readiness import ask

LOOPBACK = "127.0.0.1"
_START_S = 180.0
_STOP_S = 20.0


class LocalStack:
    """A broker and API servers; workers are started when wanted. Use as ``with local_stack() as stack``."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self._folder = folder
        self._cleanup = cleanup
        self.broker_port = free_port()
        self.redis_url = f"redis://{LOOPBACK}:{self.broker_port}/0"
        self._run("broker", broker_command(folder, self.broker_port, memory_mb=512))
        _wait(lambda: is_listening(LOOPBACK, self.broker_port), "the broker")

    def start_web(self, **settings: str) -> int:
        """The port of a new API server, once it listens."""
        port = free_port()
        self._run("web", [sys.executable, "-m", "ops.entry", "web"], HEADRACE_PORT=str(port), **settings)
        _wait(lambda: is_listening(LOOPBACK, port), "the API")
        return port

    def start_worker(self, web_port: int, **settings: str) -> None:
        """A worker, once the API at `web_port` says that it is ready."""
        self._run("worker", [sys.executable, "-m", "worker"], HEADRACE_WORKER_METRICS_PORT="-1", **settings)
        _wait(lambda: ask(LOOPBACK, web_port) is None, "the worker")

    def _run(self, name: str, command: list[str], **settings: str) -> None:
        environ = {**os.environ, "HEADRACE_REDIS_URL": self.redis_url, **settings}
        log = self._cleanup.enter_context((self._folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(command_dying_with_parent(command), env=environ, stdout=log, stderr=log)
        self._cleanup.callback(_stop, process)


@contextmanager
def local_stack() -> Iterator[LocalStack]:
    with ExitStack() as cleanup:
        folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-"))
        yield LocalStack(Path(folder), cleanup)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(condition: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{what} did not start within {_START_S:g} s")
        time.sleep(0.1)
