"""Given workers and a queue in a known state, admission answers honestly.

Where a whole app is asked it runs in this process, and refuses before it would start threads.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from flask.testing import FlaskClient

from api.app import create_app
from api.errors import ApiError
from api.pipeline.admission import AdmissionControl
from api.settings import ApiSettings
from tests.api.http.client import CHAT, Json, chat_body
from tests.api.http.reciter import FILLER
from worker.protocol.connection import connect
from worker.protocol.job import Job, SamplingParams, mint_job_id
from worker.protocol.queue import Bounds, JobQueue, Keeping
from worker.protocol.worker_lease import WorkerLease

NewApp = Callable[..., FlaskClient]


@pytest.fixture
def pool() -> str:
    return f"pool-{uuid4().hex[:8]}"


@pytest.fixture
def new_app(broker_url: str, pool: str, smollm2_folder: Path) -> Iterator[NewApp]:
    """Makes apps with given settings, which serve `pool`."""
    root = logging.getLogger()
    kept = root.handlers[:], root.level
    with ExitStack() as clients:

        def make(**settings: float) -> FlaskClient:
            own = ApiSettings(redis_url=broker_url, model=str(smollm2_folder), model_name=pool, **settings)  # type: ignore[arg-type]
            return clients.enter_context(create_app(own).test_client())

        yield make
    root.handlers[:], root.level = kept


def sign_on(broker_url: str, pool: str, name: str = "w1", **info: float) -> None:
    """A worker that holds a lease and takes no jobs."""
    described: dict[str, str | int | float] = {
        "pool_tokens": 10_000, "page_size": 16, "max_context": 1000, "fingerprint": "f", "step_age_s": 0.0,
        "is_draining": 0, **info,
    }  # fmt: skip
    WorkerLease(connect(broker_url), pool, name, 60_000).renew([], 0, described)


def refusal(client: FlaskClient, path: str, body: Json, pool: str) -> tuple[int, Json, str | None]:
    response = client.post(path, json=body | {"model": pool})
    found = response.get_json()
    assert found is not None
    return response.status_code, found["error"], response.headers.get("Retry-After")


def refused(broker_url: str, pool: str, endpoint: str, *prompts: tuple[int, ...]) -> ApiError:
    job = Job(
        id=mint_job_id(endpoint, pool), pool=pool, tenant="t", prompts=prompts, expected_tokens=4, timeout_ms=1000,
        sampling=SamplingParams(max_tokens=4, seed=1),
    )  # fmt: skip
    admission = AdmissionControl(JobQueue(connect(broker_url), pool), ApiSettings())
    with pytest.raises(ApiError) as caught:
        admission.admit(job, Keeping(watch_ms=1000, retention_ms=1000))
    return caught.value


def test_a_prompt_beyond_the_workers_own_context_is_context_length_exceeded(broker_url: str, pool: str) -> None:
    sign_on(broker_url, pool, "small", max_context=50)
    sign_on(broker_url, pool, "larger", max_context=80)
    cases: list[tuple[str, list[tuple[int, ...]], str]] = [
        ("completions", [(FILLER,) * 80], "prompt"),
        ("completions", [(7,), (FILLER,) * 81], "prompt"),
        ("chat.completions", [(FILLER,) * 80], "messages"),
    ]
    for endpoint, prompts, param in cases:
        error = refused(broker_url, pool, endpoint, *prompts)
        assert (error.status, error.code, error.param) == (400, "context_length_exceeded", param)
        assert "maximum context length is 80 tokens" in error.message


def test_a_job_larger_than_every_workers_pool_is_refused_for_good(broker_url: str, pool: str) -> None:
    sign_on(broker_url, pool, pool_tokens=320)
    error = refused(broker_url, pool, "completions", *[(FILLER,) * 100] * 4)
    assert (error.status, error.code, error.headers) == (400, "request_too_large", {})


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_full_queue_is_429_at_once_with_advice(broker_url: str, pool: str, new_app: NewApp, is_stream: bool) -> None:
    sign_on(broker_url, pool)
    status, error, retry_after = refusal(new_app(queue_depth=0), CHAT, chat_body(stream=is_stream), pool)
    assert (status, error["type"], error["code"]) == (429, "rate_limit_error", "queue_full")
    assert retry_after is not None
    assert int(retry_after) >= 1


def test_a_refusal_tells_what_is_left(broker_url: str, pool: str, new_app: NewApp) -> None:
    """In the full queue no place, and of the tenant's tokens those that its job before left over."""
    sign_on(broker_url, pool)
    full = new_app(queue_depth=0).post(CHAT, json=chat_body() | {"model": pool})
    assert [full.headers[f"x-ratelimit-{what}-requests"] for what in ("limit", "remaining")] == ["0", "0"]
    app = new_app(tenant_tokens=50, queue_depth=7)
    job = Job(
        id=mint_job_id("completions", pool), pool=pool, tenant="default", prompts=((FILLER,) * 30,), timeout_ms=60_000,
        sampling=SamplingParams(max_tokens=1, seed=1),
    )  # fmt: skip
    queue = JobQueue(connect(broker_url), pool)
    queue.admit(job, Bounds(7, 10**6, 10**6, 10**6), Keeping(watch_ms=60_000, retention_ms=1000))
    refused = app.post(CHAT, json=chat_body() | {"model": pool})
    assert (refused.status_code, refused.get_json()["error"]["code"]) == (429, "rate_limit_exceeded")
    found = {name: value for name, value in refused.headers.items() if name.startswith("x-ratelimit")}
    assert found == {
        "x-ratelimit-limit-requests": "7",
        "x-ratelimit-remaining-requests": "6",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "50",
        "x-ratelimit-remaining-tokens": "20",
        "x-ratelimit-reset-tokens": "1s",
    }
    queue.cancel(job.id, "test", "over")


@pytest.mark.parametrize("is_stream", [False, True])
def test_without_a_worker_it_is_503_at_once_with_advice(pool: str, new_app: NewApp, is_stream: bool) -> None:
    app = new_app()
    status, error, retry_after = refusal(app, CHAT, chat_body(stream=is_stream), pool)
    assert (status, error["type"], error["code"], retry_after) == (503, "server_error", "unavailable", "5")
    assert app.get("/readyz").status_code == 503
    assert app.get("/livez").status_code == 200


def test_workers_that_are_leaving_take_nothing_new(broker_url: str, pool: str, new_app: NewApp) -> None:
    sign_on(broker_url, pool, is_draining=1)
    assert refusal(new_app(), CHAT, chat_body(), pool)[0] == 503
