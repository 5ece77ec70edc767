"""A pool of its own for each test, on the session's broker."""

import itertools
import os
from collections.abc import Callable

import pytest
import redis

from worker.protocol.connection import connect
from worker.protocol.job import Job, JobClass, SamplingParams, mint_job_id
from worker.protocol.queue import Bounds, JobQueue
from worker.protocol.worker_lease import Room, WorkerLease

LEASE_MS = 2000


def rooms(num_tokens: int, num_jobs: int) -> dict[JobClass, Room]:
    """The same room for each class."""
    return dict.fromkeys(JobClass, Room(num_tokens, num_jobs))


ROOMY = Bounds(max_depth=1000, max_tokens=10**9, max_tenant_tokens=10**9, max_wait_ms=10**9)
INFO: dict[str, str | int | float] = {
    "pool_tokens": 1000, "page_size": 1, "max_context": 500, "fingerprint": "f", "step_age_s": 0.0, "is_draining": 0,
}  # fmt: skip
_numbers = itertools.count()


@pytest.fixture
def pool() -> str:
    return f"pool-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def client(broker_url: str) -> redis.Redis:
    return connect(broker_url)


@pytest.fixture
def queue(client: redis.Redis, pool: str) -> JobQueue:
    return JobQueue(client, pool)


@pytest.fixture
def new_worker(client: redis.Redis, pool: str) -> Callable[[str], WorkerLease]:
    def make(name: str) -> WorkerLease:
        worker = WorkerLease(client, pool, name, LEASE_MS)
        worker.renew([], 0, INFO)
        return worker

    return make


@pytest.fixture
def new_job(pool: str) -> Callable[..., Job]:
    def make(
        tenant: str = "t", num_prompt_tokens: int = 10, job_class: JobClass = JobClass.INTERACTIVE, **more: int
    ) -> Job:
        return Job(
            id=mint_job_id("chat.completions", pool),
            pool=pool,
            tenant=tenant,
            prompts=(tuple(range(num_prompt_tokens)),),
            sampling=SamplingParams(max_tokens=8, seed=1),
            job_class=job_class,
            timeout_ms=more.get("timeout_ms", 600_000),
            expected_tokens=more.get("expected_tokens", 8),
        )

    return make
