"""One stack for all tests of WebSockets: an open API process, and a strict one before the same queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import wait_until
from tests.stack import Stack, WebServer
from worker.protocol.connection import connect
from worker.protocol.queue import JobQueue

KEY = "sesame"
STRICT = {
    "HEADRACE_API_KEYS": f"{KEY}=default,other=stranger",
    "HEADRACE_CORS_ORIGINS": "https://app.example, https://www.example",
    "HEADRACE_ALLOWED_HOSTS": "127.0.0.1, .headrace.example",
    "HEADRACE_WS_MAX_MESSAGE_BYTES": "20000",
    "HEADRACE_WS_MAX_CONNECTIONS": "2",
    "HEADRACE_WS_MAX_REQUESTS": "2",
    "HEADRACE_PING_S": "1",
    "HEADRACE_STALL_TIMEOUT_S": "1",
    "HEADRACE_RESUME_GRACE_S": "30",
}


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Iterator[Stack]:
    # Without the prefix cache a request's usage is the same to the last field however often it was sent before.
    folder = tmp_path_factory.mktemp("websocket")
    with Stack(folder, tiny_model_folder, HEADRACE_PREFIX_CACHE="false") as running:
        running.start_web(**STRICT)
        running.start()
        yield running


@pytest.fixture(scope="package")
def strict(stack: Stack) -> WebServer:
    return stack.webs[0]


@pytest.fixture(scope="package")
def web(stack: Stack) -> WebServer:
    return stack.webs[1]


@pytest.fixture
def queue(stack: Stack) -> JobQueue:
    return JobQueue(connect(stack.redis_url), "tiny")


@pytest.fixture(autouse=True)
def leaves_nothing_behind(stack: Stack, queue: JobQueue) -> Iterator[None]:
    """After every test the queue is empty, and no process has logged an error."""
    yield
    wait_until(lambda: is_idle(queue), "no job waits or runs", deadline_s=20)
    for server in stack.webs:
        log = server.process.log_text()
        assert "Traceback" not in log, log
        assert '"level": "error"' not in log, log


def is_idle(queue: JobQueue) -> bool:
    snapshot = queue.snapshot()
    return snapshot.num_running == 0 and not any(snapshot.depth.values())
