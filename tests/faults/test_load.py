"""Many clients at once: bounds hold exactly, texts stay whole, probes are answered."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.faults.conftest import SHORT_LEASES, queue_of
from tests.processes import wait_until
from tests.stack import Stack, WebServer
from tests.streams import StreamReader, chat, chat_body
from worker.protocol.connection import connect
from worker.protocol.job import JobClass
from worker.protocol.worker_lease import WorkerLease

NUM_STREAMS = 300
NUM_TOKENS = 64
NUM_RACING = 200
BOUND = 50


@pytest.fixture(scope="module")
def busy_stack(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Iterator[Stack]:
    settings = {**SHORT_LEASES, "HEADRACE_MAX_WAIT_S": "600", "HEADRACE_WATCHER_GRACE_S": "60"}
    with Stack(tmp_path_factory.mktemp("stack"), tiny_model_folder, **settings) as stack:
        yield stack


@contextmanager
def worker_that_takes_nothing(stack: Stack) -> Iterator[None]:
    """A live lease and no claims: what is admitted stays in the queue."""
    lease = WorkerLease(connect(stack.redis_url), "tiny", "idle", 2000)
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.is_set():
            lease.renew([], 0, {
                "pool_tokens": 10**6, "page_size": 32, "max_context": 4096, "fingerprint": "idle",
                "step_age_s": 0.0, "is_draining": 0,
            })  # fmt: skip
            is_over.wait(0.3)

    thread = threading.Thread(target=renew)
    thread.start()
    yield
    is_over.set()
    thread.join()
    lease.requeue([], is_leaving=True)


def num_waiting(stack: Stack) -> int:
    return queue_of(stack).snapshot().depth[JobClass.INTERACTIVE]


def test_of_200_racing_requests_exactly_the_bound_is_admitted(busy_stack: Stack) -> None:
    stack = busy_stack
    web = stack.start_web(HEADRACE_QUEUE_DEPTH=str(BOUND))
    start = threading.Barrier(NUM_RACING)

    def request(i: int) -> tuple[int, str | None]:
        with httpx.Client(timeout=240) as client:
            start.wait()
            body = chat_body(4, messages=[{"role": "user", "content": str(i)}])
            response = client.post(web.url + "/v1/chat/completions", json=body)
        return response.status_code, response.headers.get("Retry-After")

    with ThreadPoolExecutor(NUM_RACING) as pool:
        with worker_that_takes_nothing(stack):
            web.wait_ready()
            futures = [pool.submit(request, i) for i in range(NUM_RACING)]
            wait_until(lambda: sum(f.done() for f in futures) == NUM_RACING - BOUND, "the others are refused")
            assert num_waiting(stack) == BOUND
            assert httpx.get(web.url + "/livez").status_code == 200
        stack.start_worker()
        answers = [future.result() for future in futures]
    assert Counter(status for status, _ in answers) == {200: BOUND, 429: NUM_RACING - BOUND}
    assert all(int(advice or 0) >= 1 for status, advice in answers if status == 429)
    assert num_waiting(stack) == 0
    web.process.terminate()


def test_300_streams_through_one_process_are_all_exact(busy_stack: Stack) -> None:
    stack = busy_stack
    stack.mend()
    web = stack.start_web()
    web.wait_ready()
    questions = [f"Tell me about the number {i}." for i in range(8)]
    bodies = [chat_body(NUM_TOKENS, messages=[{"role": "user", "content": question}]) for question in questions]
    expected = [chat(web.url, body).wait_for_end().text for body in bodies]
    assert len(set(expected)) == len(expected)
    readers = [chat(web.url, bodies[i % len(bodies)]) for i in range(NUM_STREAMS)]
    readers[0].pause_s = 0.2
    num_probes = probe_until_the_end(web, readers[1:])
    assert num_probes > 0
    for i, reader in enumerate(readers):
        reader.wait_for_end(240)
        assert (i, reader.text, reader.is_done, reader.error) == (i, expected[i % len(bodies)], True, None)
    wait_until(lambda: stack.worker_pages()["held"] == 0, "all pages are free")


def probe_until_the_end(web: WebServer, readers: list[StreamReader]) -> int:
    """How often /livez said 200 while the streams ran; it never said anything else."""
    num = 0
    while not all(reader.is_done for reader in readers):
        assert httpx.get(web.url + "/livez", timeout=60).status_code == 200
        num += 1
        assert num < 10_000
        threading.Event().wait(0.2)
    return num
