"""Stacks for tests that break them: short leases, and a look into the queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models import TINY_MODEL, make_tiny_model
from tests.stack import Stack
from worker.protocol.connection import connect
from worker.protocol.queue import JobQueue

SHORT_LEASES = {
    "HEADRACE_DTYPE": "auto",
    "HEADRACE_LEASE_S": "3",
    "HEADRACE_WATCHER_GRACE_S": "4",
    "HEADRACE_PING_S": "0.5",
    "HEADRACE_WORKER_GRACE_S": "0",
}


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> Path:
    """The tiny model in bfloat16: computed as users' models are, by the lean decoder."""
    folder = tmp_path_factory.mktemp("models-in-bfloat16") / TINY_MODEL
    make_tiny_model(folder, smollm2_folder, "bfloat16")
    return folder


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack"), tiny_model_folder, **SHORT_LEASES) as stack:
        yield stack


@pytest.fixture
def stack(request: pytest.FixtureRequest, shared_stack: Stack) -> Iterator[Stack]:
    """One stack for all tests of a module: starting takes longer than breaking. Each test finds it mended."""
    num_failed_before = request.session.testsfailed
    yield shared_stack.mend()
    if request.session.testsfailed > num_failed_before:
        print(shared_stack.logs())


def queue_of(stack: Stack, pool: str = "tiny") -> JobQueue:
    return JobQueue(connect(stack.redis_url), pool)
