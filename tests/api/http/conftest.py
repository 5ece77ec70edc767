"""One stack for all tests over HTTP: two models on one broker, and API servers with settings of their own.

``server``, of two processes, serves the reciting model, whose every answer is known; ``strict`` serves it too, with
keys and low limits; ``tiny`` serves a model with random weights and a long context.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pytest

from tests.api.http.reciter import RECITER, Recital, make_reciter
from tests.models import TINY_MODEL
from tests.processes import RunningProcess, wait_until
from tests.stack import Stack, WebServer
from worker.protocol.connection import connect
from worker.protocol.queue import JobQueue

ALIASES = "gpt-4o, org/model"
STRICT = {
    "HEADRACE_API_KEYS": "sesame=alice,  open=bob",
    "HEADRACE_CORS_ORIGINS": "https://app.example",
    "HEADRACE_MAX_BODY_BYTES": "20000",
    "HEADRACE_BODY_TIMEOUT_S": "2",
    "HEADRACE_MAX_FILE_BYTES": "200000",
    "HEADRACE_STORAGE_TENANT_BYTES": "500000",
    "HEADRACE_PING_S": "0.1",
}


@dataclass(frozen=True)
class Servers:
    stack: Stack
    server: WebServer
    strict: WebServer
    tiny: WebServer
    worker: RunningProcess
    tiny_worker: RunningProcess

    @cached_property
    def queues(self) -> dict[str, JobQueue]:
        """By pool."""
        return {pool: JobQueue(connect(self.stack.redis_url), pool) for pool in (RECITER, TINY_MODEL)}


@pytest.fixture(scope="session")
def recital(smollm2_folder: Path) -> Recital:
    return Recital.load(smollm2_folder)


@pytest.fixture(scope="session")
def servers(
    tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path, tiny_model_folder: Path
) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("http")
    make_reciter(folder / RECITER, smollm2_folder)
    tiny = {"HEADRACE_MODEL": str(tiny_model_folder)}
    with Stack(folder, folder / RECITER) as stack:
        found = Servers(
            stack=stack,
            worker=stack.start_worker(),
            tiny_worker=stack.start_worker(**tiny),
            server=stack.start_web(HEADRACE_WEB_PROCESSES="2", HEADRACE_MODEL_ALIASES=ALIASES),
            strict=stack.start_web(**STRICT),
            tiny=stack.start_web(**tiny),
        )
        stack.wait_ready()
        yield found


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test that used the servers no job waits or runs and no process has logged an error."""
    yield
    if "servers" not in request.fixturenames:
        return
    servers: Servers = request.getfixturevalue("servers")
    for pool, queue in servers.queues.items():
        wait_until(partial(is_idle, queue), f"no job of {pool} waits or runs", deadline_s=20)
    for process in [*(web.process for web in servers.stack.webs), *servers.stack.workers]:
        assert process.exit_code is None
        log = process.log_text()
        assert '"level": "error"' not in log, log


def is_idle(queue: JobQueue) -> bool:
    snapshot = queue.snapshot()
    return snapshot.num_running == 0 and not any(snapshot.depth.values())


@pytest.fixture
def new_web(servers: Servers) -> Iterator[Callable[..., WebServer]]:
    """Starts an API server with settings of its own, which ends with the test."""
    started: list[WebServer] = []

    def start(**settings: str) -> WebServer:
        started.append(servers.stack.start_web(**settings))
        started[-1].wait_ready()
        return started[-1]

    yield start
    for web in started:
        web.process.kill()
        servers.stack.webs.remove(web)


@pytest.fixture
def server(servers: Servers) -> WebServer:
    return servers.server


@pytest.fixture
def strict(servers: Servers) -> WebServer:
    return servers.strict


@pytest.fixture
def tiny(servers: Servers) -> WebServer:
    return servers.tiny
