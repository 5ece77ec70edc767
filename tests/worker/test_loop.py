"""The worker's loop, publisher and lease keeper against a real broker, with an engine that writes one word a step."""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import redis
from msgspec import structs

from tests.processes import wait_until
from tests.worker.engine.doubles import endless, expected_answer, make_engine
from tests.worker.protocol.conftest import rooms
from worker import loop
from worker.claimer import Claimer
from worker.engine.engine import Engine, JobOutput
from worker.engine.job_check import JobRejected
from worker.engine.stats import EngineStats
from worker.held_jobs import HeldJobs
from worker.lease_keeper import LeaseKeeper, Limits
from worker.loop import Ports, WorkerLoop
from worker.metrics import WorkerMetrics
from worker.protocol.connection import connect
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import Job, JobClass, SamplingParams, mint_job_id
from worker.protocol.queue import Bounds, JobQueue, Keeping
from worker.protocol.worker_lease import ClaimedJob, Room, Row, WorkerLease
from worker.publisher import Publisher

_numbers = itertools.count()
NUM_WORDS = 4
EXPECTED = {"expected_tokens": 20}
DONE = Terminal("succeeded", ended_s=7)
BATCH_JOB = Job(
    id="",
    pool="",
    tenant="t",
    prompts=((5,),),
    sampling=SamplingParams(max_tokens=NUM_WORDS, seed=1),
    job_class=JobClass.BATCH,
)


class WordEngine:
    """Stands in for the engine: each job gets NUM_WORDS deltas, one a step; a prompt of [0] is refused."""

    page_size = 1
    num_pages = 1000
    max_context = 500
    fingerprint = "words"

    def __init__(self) -> None:
        self.jobs: dict[str, int] = {}

    @property
    def has_work(self) -> bool:
        return bool(self.jobs)

    def rooms(self) -> dict[JobClass, Room]:
        return rooms(self.num_pages, 8 - len(self.jobs))

    def surplus(self) -> list[str]:
        return []

    def add(self, job: Job, replay: tuple[Delta, ...]) -> None:
        if job.prompts[0] == (0,):
            raise JobRejected("a prompt of nothing")
        if job.id in self.jobs:
            raise ValueError("held already")
        self.jobs[job.id] = len(replay)

    def cancel(self, job_id: str) -> bool:
        return self.jobs.pop(job_id, None) is not None

    def step(self) -> list[JobOutput]:
        outputs = []
        for job_id, num_done in list(self.jobs.items()):
            self.jobs[job_id] = num_done + 1
            is_last = num_done + 1 == NUM_WORDS
            terminal = Terminal("succeeded") if is_last else None
            outputs.append(JobOutput(job_id, (Delta(0, (num_done,), f"{num_done} "),), terminal))
            if is_last:
                del self.jobs[job_id]
        return outputs

    def stats(self) -> EngineStats:
        return EngineStats(len(self.jobs), 0, 1000, 1000, 0, 0, 0, 0, 0, 0, 0, 0)


class Bench:
    """One pool with its worker's parts, each of which a test drives by hand."""

    def __init__(self, broker_url: str, engine: Engine) -> None:
        self.pool = f"loop-{os.getpid()}-{next(_numbers)}"
        self.client_url = broker_url
        self.client = connect(broker_url)
        self.queue = JobQueue(self.client, self.pool)
        self.lease = WorkerLease(connect(broker_url), self.pool, "w", 60_000)
        self.engine = engine
        self.held = HeldJobs()
        self.publisher = Publisher(WorkerLease(connect(broker_url), self.pool, "w", 60_000), self.held)
        self.publisher.start()
        self.claimer = Claimer(self.lease, self.held, engine.page_size, "words")  # its thread is the test
        self.metrics = WorkerMetrics()
        ports = Ports(self.lease, self.claimer, self.held, self.publisher, self.metrics)
        self.loop = WorkerLoop(engine, ports)
        self.keeper = LeaseKeeper(
            WorkerLease(connect(broker_url), self.pool, "w", 60_000),
            self.queue, self.held, lambda: self.loop.describe(60.0), Limits(60_000, 3),
        )  # fmt: skip
        self.keeper.beat(0.0)

    def admit(self, *prompt: int) -> str:
        sampling = SamplingParams(max_tokens=NUM_WORDS, seed=1)
        return self.admit_job(Job(id="", pool="", tenant="t", prompts=(prompt or (5,),), sampling=sampling)).id

    def admit_job(self, job: Job) -> Job:
        """The job, as it lies in this pool's queue under an id of its own."""
        job = structs.replace(job, id=mint_job_id("completions", self.pool), pool=self.pool, timeout_ms=60_000)
        self.queue.admit(job, Bounds(99, 10**9, 10**9, 10**9), Keeping(0, 60_000))
        return job

    def text(self, job: Job) -> list[int]:
        return [id for event in self.queue.replay(job.id, 0) if isinstance(event, Delta) for id in event.token_ids]

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.claim()
            self.loop.tick()
        assert self.publisher.flush(30)

    def finish(self) -> None:
        """Goes on until nothing is left to do."""
        while self.engine.has_work or any(self.queue.snapshot().depth.values()):
            self.tick()
            self.keeper.beat(1.0)

    def claim(self) -> None:
        with contextlib.suppress(redis.RedisError):
            self.claimer.claim_once(self.engine.rooms())


@pytest.fixture
def bench(broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(loop, "unix_s", lambda: DONE.ended_s)
    yield from bench_over(broker_url, cast(Engine, WordEngine()))


@pytest.fixture
def crowded(broker_url: str) -> Iterator[Bench]:
    """With an engine of three places and twelve pages."""
    yield from bench_over(broker_url, make_engine(num_pages=12, page_size=8, max_sequences=3, max_context=64)[0])


def bench_over(broker_url: str, engine: Engine) -> Iterator[Bench]:
    made = Bench(broker_url, engine)
    yield made
    made.publisher.stop()


WORDS = [Delta(0, (n,), f"{n} ") for n in range(NUM_WORDS)]


def test_a_job_is_claimed_computed_and_published_step_by_step(bench: Bench) -> None:
    job_id = bench.admit()
    bench.tick(2)
    assert bench.queue.replay(job_id, 0) == WORDS[:2]
    bench.tick(2)
    assert bench.queue.replay(job_id, 0) == [*WORDS, DONE]
    assert (len(bench.held), bench.queue.snapshot().num_running) == (0, 0)


def test_the_pages_are_told_before_the_first_turn(bench: Bench) -> None:
    told = bench.metrics.registry.get_sample_value
    pages = [told("headrace_kv_pages", {"state": state}) for state in ("free", "held", "cached")]
    assert pages == [1000, 0, 0]


def test_an_unanswered_claim_is_repeated_and_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = bench.admit()
    real_claim: Callable[..., list[ClaimedJob]] = bench.lease.claim

    def lose_the_reply(number: int, **wishes: Any) -> list[ClaimedJob]:
        real_claim(number, **wishes)
        raise redis.ConnectionError("the reply was lost")

    monkeypatch.setattr(bench.lease, "claim", lose_the_reply)
    bench.tick()
    assert bench.queue.describe(job_id)["state"] == "running"
    bench.keeper.beat(1.0)
    monkeypatch.setattr(bench.lease, "claim", real_claim)
    bench.tick(NUM_WORDS)
    assert bench.queue.replay(job_id, 0) == [*WORDS, DONE]


def test_events_that_the_broker_lost_are_appended_again(bench: Bench) -> None:
    job_id = bench.admit()
    bench.tick(2)
    bench.client.rpop(f"headrace:{{{bench.pool}}}:out:{job_id}", 2)
    bench.tick(2)
    assert bench.queue.replay(job_id, 0) == [*WORDS, DONE]


def test_a_cancelled_job_is_dropped_with_the_next_renewal(bench: Bench) -> None:
    job_id = bench.admit()
    bench.tick()
    bench.queue.cancel(job_id, "client_gone", "x")
    bench.keeper.beat(1.0)
    bench.tick()
    assert not bench.engine.has_work
    assert bench.queue.replay(job_id, 0) == [WORDS[0], Terminal("cancelled", "client_gone", "x")]


def test_a_cancelled_job_is_dropped_when_its_next_step_is_published(bench: Bench) -> None:
    job_id = bench.admit()
    bench.tick()
    bench.queue.cancel(job_id, "client_gone", "x")
    bench.tick()
    bench.tick()
    assert not bench.engine.has_work


def test_a_job_the_engine_refuses_fails_alone(bench: Bench) -> None:
    refused, fine = bench.admit(0), bench.admit()
    bench.tick(NUM_WORDS)
    assert bench.queue.replay(refused, 0) == [Terminal("failed", "invalid_request", "a prompt of nothing")]
    assert bench.queue.replay(fine, 0) == [*WORDS, DONE]


def test_a_leaving_worker_hands_its_jobs_back_with_their_tokens(bench: Bench) -> None:
    job_id = bench.admit()
    bench.tick(2)
    bench.loop.flags.is_stopping = True
    bench.loop.run(grace_s=0.0)
    bench.loop.leave()
    assert bench.queue.describe(job_id)["state"] == "queued"
    assert bench.queue.snapshot().workers == []
    bench.keeper.beat(1.0)
    again = bench.lease.claim(99, rooms(1000, 1), page_size=1, fingerprint="words")
    assert [(one.job.id, one.replay, one.num_attempts) for one in again] == [(job_id, tuple(WORDS[:2]), 0)]


def test_a_stopping_worker_finishes_what_it_can_within_its_grace(bench: Bench) -> None:
    running, waiting = bench.admit(), ""
    bench.tick()
    bench.loop.flags.is_stopping = True
    waiting = bench.admit()
    bench.loop.run(grace_s=60.0)
    bench.publisher.flush(30)
    assert bench.queue.replay(running, 0)[-1] == DONE
    assert bench.queue.describe(waiting)["state"] == "queued"


def test_a_stuck_engine_gives_up_its_lease(bench: Bench) -> None:
    assert bench.loop.describe(step_limit_s=60.0) is not None
    wait_until(lambda: bench.loop.describe(step_limit_s=0.01) is None, "the turn is too old")


def test_the_queue_keeps_a_job_whose_last_reply_was_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = bench.admit()
    bench.tick(NUM_WORDS - 1)
    lease = bench.publisher._lease
    real_publish = lease.publish_step
    calls: list[int] = []

    def lose_the_first_reply(rows: Any) -> Any:
        published = real_publish(rows)
        calls.append(len(rows))
        if len(calls) == 1:
            raise redis.TimeoutError("the reply was lost")
        return published

    monkeypatch.setattr(lease, "publish_step", lose_the_first_reply)
    bench.tick()
    assert calls == [2, 2]
    assert bench.queue.replay(job_id, 0) == [*WORDS, DONE]
    assert len(bench.held) == 0


def test_a_job_that_comes_back_while_the_engine_still_has_it_goes_on_once(bench: Bench) -> None:
    job_id = bench.admit()
    bench.tick()
    bench.lease.requeue([(job_id, 1)], is_leaving=False)
    bench.tick(NUM_WORDS - 1)
    assert bench.queue.describe(job_id)["state"] == "succeeded"
    assert bench.queue.replay(job_id, 0) == [*WORDS, DONE]
    assert not bench.engine.has_work


def test_news_of_a_loss_that_comes_late_does_not_touch_the_job_claimed_again(bench: Bench) -> None:
    job_id = bench.admit()
    bench.tick()
    bench.held.report_lost([(job_id, 1)])
    bench.lease.requeue([(job_id, 1)], is_leaving=False)
    bench.claim()
    bench.loop._take_in()
    bench.held.report_lost([(job_id, 1)])
    bench.held.close_ended([Row(job_id, 1, 9, Terminal("succeeded"))])
    bench.tick(NUM_WORDS - 1)
    assert bench.queue.replay(job_id, 0) == [*WORDS, DONE]
    assert len(bench.held) == 0


def test_one_offer_buys_one_claim(bench: Bench) -> None:
    room = rooms(1000, 1)
    bench.claimer.start()
    bench.claimer.offer(room)
    first, second = bench.admit(), bench.admit()
    [taken] = bench.claimer.take(30.0)
    assert taken.job.id == first
    assert bench.claimer.take(1.0) == [], "the room of the first offer is used up"
    bench.claimer.offer(room)
    assert [claimed.job.id for claimed in bench.claimer.take(30.0)] == [second]
    bench.claimer.stop()


def test_an_interactive_job_does_not_wait_until_claimed_batch_jobs_are_taken(bench: Bench) -> None:
    room = rooms(1000, 3)
    bench.claimer.start()
    bench.claimer.offer(room)
    first = bench.admit_job(BATCH_JOB)
    wait_until(lambda: bench.queue.snapshot().num_running == 1, "the batch job is claimed")
    second, urgent = bench.admit_job(BATCH_JOB), bench.admit()
    wait_until(lambda: bench.queue.snapshot().num_running == 2, "the interactive job is claimed too")
    late = bench.admit()
    bench.keeper.beat(1.0)
    assert [claimed.job.id for claimed in bench.claimer.take(30.0)] == [first.id, urgent]
    assert bench.claimer.take(1.0) == [], "the offer is used up"
    assert [bench.queue.describe(job_id)["state"] for job_id in (second.id, late)] == ["queued", "queued"]
    bench.claimer.stop()


def test_an_interactive_claim_on_its_way_while_batch_jobs_are_taken_is_not_told_of_yet(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_claim = bench.lease.claim
    is_claimed, may_reply = threading.Event(), threading.Event()

    def delay_the_urgent_reply(number: int, **wishes: Any) -> list[ClaimedJob]:
        claimed = real_claim(number, **wishes)
        if any(one.job.job_class == JobClass.INTERACTIVE for one in claimed):
            is_claimed.set()
            assert may_reply.wait(30)
        return claimed

    monkeypatch.setattr(bench.lease, "claim", delay_the_urgent_reply)
    bench.claimer.start()
    bench.claimer.offer(rooms(1000, 3))
    first = bench.admit_job(BATCH_JOB)
    wait_until(lambda: bench.queue.snapshot().num_running == 1, "the batch job is claimed")
    urgent = bench.admit()
    assert is_claimed.wait(30)
    assert [claimed.job.id for claimed in bench.claimer.take(30.0)] == [first.id]
    bench.keeper.beat(1.0)
    assert bench.queue.describe(urgent)["state"] == "running", "not given back, though it is not held yet"
    may_reply.set()
    assert [claimed.job.id for claimed in bench.claimer.take(30.0)] == [urgent]
    bench.keeper.beat(2.0)
    assert (bench.queue.describe(urgent)["state"], bench.held.take_lost()) == ("running", [])
    bench.claimer.stop()


def test_a_worker_told_to_drain_while_a_batch_claim_is_on_its_way_claims_nothing_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_claim = bench.lease.claim

    def drain_meanwhile(number: int, **wishes: Any) -> list[ClaimedJob]:
        claimed = real_claim(number, **wishes)
        if claimed:
            bench.claimer.offer(None)
        return claimed

    monkeypatch.setattr(bench.lease, "claim", drain_meanwhile)
    bench.claimer.start()
    bench.claimer.offer(rooms(1000, 3))
    first = bench.admit_job(BATCH_JOB)
    wait_until(lambda: bench.queue.snapshot().num_running == 1, "the batch job is claimed")
    urgent = bench.admit()
    assert [claimed.job.id for claimed in bench.claimer.take(30.0)] == [first.id]
    assert bench.claimer.take(1.0) == []
    assert bench.queue.describe(urgent)["state"] == "queued"
    bench.claimer.stop()


def test_an_offer_made_before_the_claimed_jobs_were_taken_does_not_count(bench: Bench) -> None:
    room = rooms(1000, 1)
    bench.claimer.start()
    bench.claimer.offer(room)
    bench.admit()
    bench.admit()
    wait_until(lambda: bench.queue.snapshot().num_running == 1, "the first job is claimed")
    bench.claimer.offer(room)
    assert len(bench.claimer.take(30.0)) == 1
    assert bench.claimer.take(1.0) == []
    bench.claimer.stop()


def test_a_draining_worker_still_learns_what_an_unanswered_claim_gave_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = bench.admit()
    real_claim = bench.lease.claim
    num_calls = itertools.count(1)

    def lose_the_first_reply(number: int, **wishes: Any) -> list[ClaimedJob]:
        claimed = real_claim(number, **wishes)
        if next(num_calls) == 1:
            bench.claimer.offer(None)
            raise redis.ConnectionError("the reply was lost")
        return claimed

    monkeypatch.setattr(bench.lease, "claim", lose_the_first_reply)
    bench.claimer.start()
    bench.claimer.offer(rooms(1000, 8))
    assert [claimed.job.id for claimed in bench.claimer.take(30.0)] == [job_id]
    bench.claimer.stop()


def test_a_worker_that_has_heard_the_bell_for_a_job_too_large_for_it_rings_for_the_others(bench: Bench) -> None:
    bench.claimer.start()
    bench.claimer.offer(rooms(3, 8))
    other = WorkerLease(connect(bench.client_url), bench.pool, "other", 60_000)
    job_id = bench.admit(*range(1, 9))
    wait_until(lambda: other.wait_for_bell([JobClass.INTERACTIVE], 0.01) is not None, "the other worker hears of it")
    bench.claimer.offer(rooms(1000, 8))
    assert [claimed.job.id for claimed in bench.claimer.take(30.0)] == [job_id]
    wait_until(lambda: other.wait_for_bell([JobClass.INTERACTIVE], 0.3) is None, "the bell is silent when no job waits")
    bench.claimer.stop()


def test_when_batch_jobs_fill_all_places_then_an_interactive_job_starts_at_once_and_they_go_on_later(
    crowded: Bench,
) -> None:
    batch = [
        crowded.admit_job(endless([1 + i] * 5, max_tokens=20, job_class=JobClass.BATCH, job_fields=EXPECTED))
        for i in range(5)
    ]
    crowded.tick(3)
    assert crowded.engine.stats().num_running == 3
    urgent = crowded.admit_job(endless([9] * 5, max_tokens=4, job_fields={"expected_tokens": 4}))
    crowded.tick()
    assert len(crowded.text(urgent)) == 1, "claimed and computed in one turn"
    crowded.tick()
    crowded.keeper.beat(1.0)
    assert [crowded.queue.describe(job.id)["state"] for job in batch] == ["running"] * 2 + ["queued"] * 3
    crowded.tick(2)
    assert crowded.text(urgent) == expected_answer(urgent)
    crowded.finish()
    assert [crowded.text(job) for job in batch] == [expected_answer(job) for job in batch]
    assert [crowded.queue.describe(job.id)["attempts"] for job in batch] == ["0"] * 5


def test_when_batch_jobs_fill_all_pages_then_an_interactive_job_starts_at_once(crowded: Bench) -> None:
    large = {"expected_tokens": 40}
    batch = [
        crowded.admit_job(endless([1 + i] * 8, max_tokens=40, job_class=JobClass.BATCH, job_fields=large))
        for i in range(2)
    ]
    crowded.tick(30)
    urgent = crowded.admit_job(endless([9] * 30, max_tokens=4, job_fields={"expected_tokens": 4}))
    crowded.tick()
    assert len(crowded.text(urgent)) == 1
    crowded.finish()
    assert [crowded.text(job) for job in (*batch, urgent)] == [expected_answer(job) for job in (*batch, urgent)]
