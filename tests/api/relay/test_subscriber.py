"""A stream sees every event once and in order, whatever happens to the frames on their way."""

import itertools
import os
from collections.abc import Iterator

import pytest

from api.relay.subscriber import (
    MAX_QUEUED_EVENTS,
    ClientGone,
    JobGone,
    Notice,
    Subscriber,
    Subscription,
    follow,
)
from tests.processes import wait_until
from tests.worker.protocol.conftest import rooms
from worker.protocol.connection import connect
from worker.protocol.event import Delta, Event, Terminal
from worker.protocol.job import Job, SamplingParams, mint_job_id
from worker.protocol.queue import Bounds, JobQueue, Keeping
from worker.protocol.worker_lease import Row, WorkerLease

ROOMY = Bounds(1000, 10**9, 10**9, 10**9)
_numbers = itertools.count()


class RunningJob:
    """A job of a pool of its own, whose worker is the test."""

    def __init__(self, broker_url: str) -> None:
        self.pool = f"relay-{os.getpid()}-{next(_numbers)}"
        self.queue = JobQueue(connect(broker_url), self.pool)
        self.worker = WorkerLease(connect(broker_url), self.pool, "w", 60_000)
        self.worker.renew([], 0, {})
        sampling = SamplingParams(max_tokens=9, seed=1)
        self.id = mint_job_id("completions", self.pool)
        job = Job(
            id=self.id, pool=self.pool, tenant="t", prompts=((1,),), sampling=sampling, timeout_ms=600_000
        )  # fmt: skip
        self.queue.admit(job, ROOMY, Keeping(0, 60_000))
        self.worker.claim(1, rooms(10**6, 1), page_size=1, fingerprint="f")
        self.events: list[Event] = []

    def publish(self, *events: Event) -> None:
        first = len(self.events) + 1
        self.events.extend(events)
        self.worker.publish_step([Row(self.id, 1, first + i, event) for i, event in enumerate(events)])


@pytest.fixture
def job(broker_url: str) -> RunningJob:
    return RunningJob(broker_url)


def deltas(first: int, last: int) -> list[Event]:
    return [Delta(0, (n,), f"{n} ") for n in range(first, last + 1)]


def all_events(stream: Iterator[list[Event]]) -> list[Event]:
    return [event for events in stream for event in events]


def test_replay_then_live_events_make_one_sequence(broker_url: str, job: RunningJob) -> None:
    subscriber = Subscriber(lambda: connect(broker_url), job.pool)
    job.publish(*deltas(1, 3))
    stream = follow(subscriber.subscribe(job.id, 1000), job.queue, 0.1)
    assert next(stream) == deltas(1, 3)
    job.publish(*deltas(4, 5))
    job.publish(Terminal("succeeded"))
    assert all_events(stream) == [*deltas(4, 5), Terminal("succeeded")]


def test_events_seen_twice_are_told_once_and_a_gap_is_filled_from_the_list(job: RunningJob) -> None:
    subscription = Subscription(job.id, 1000)
    stream = follow(subscription, job.queue, 0.1)
    job.publish(*deltas(1, 1))
    assert next(stream) == deltas(1, 1)
    job.publish(*deltas(2, 2))
    subscription.put(1, deltas(1, 1)[0])
    subscription.put(2, deltas(2, 2)[0])
    job.publish(*deltas(3, 6))
    subscription.put(6, deltas(6, 6)[0])
    job.publish(Terminal("succeeded"))
    subscription.put(7, Terminal("succeeded"))
    assert all_events(stream) == [*deltas(2, 6), Terminal("succeeded")]


def test_a_slow_reader_costs_a_bounded_queue_and_no_event(broker_url: str, job: RunningJob) -> None:
    subscriber = Subscriber(lambda: connect(broker_url), job.pool)
    subscription = subscriber.subscribe(job.id, 1000)
    stream = follow(subscription, job.queue, 0.1)
    job.publish(*deltas(1, 1))
    assert next(stream) == deltas(1, 1)
    for n in range(2, 4 * MAX_QUEUED_EVENTS):
        job.publish(*deltas(n, n))
    job.publish(Terminal("succeeded"))
    wait_until(lambda: subscription.num_queued > MAX_QUEUED_EVENTS, "the queue is at its bound")
    assert subscription.num_queued == MAX_QUEUED_EVENTS + 1
    assert all_events(stream) == [*deltas(2, 4 * MAX_QUEUED_EVENTS - 1), Terminal("succeeded")]


def test_a_lost_frame_is_made_up_for_even_when_nothing_follows(job: RunningJob) -> None:
    stream = follow(Subscription(job.id, 1000), job.queue, 0.5)
    job.publish(*deltas(1, 1))
    assert next(stream) == deltas(1, 1)
    assert next(stream) == []
    job.publish(Terminal("succeeded"))
    assert all_events(stream) == [Terminal("succeeded")]


@pytest.mark.parametrize("notice", [Notice.CLIENT_GONE, Notice.STOPPED])
def test_a_stream_nobody_reads_ends_at_once(job: RunningJob, notice: Notice) -> None:
    subscription = Subscription(job.id, 1000)
    subscription.notify(notice)
    with pytest.raises(ClientGone):
        list(follow(subscription, job.queue, 60.0))


def test_a_vanished_job_says_whether_it_had_started(job: RunningJob) -> None:
    subscription = Subscription(job.id, 1000)
    subscription.notify(Notice.JOB_GONE)
    with pytest.raises(JobGone) as gone:
        list(follow(subscription, job.queue, 60.0))
    assert gone.value.has_started is False
    job.publish(*deltas(1, 1))
    subscription.notify(Notice.JOB_GONE)
    with pytest.raises(JobGone) as gone:
        list(follow(subscription, job.queue, 60.0))
    assert gone.value.has_started is True


def test_nothing_stays_in_the_subscriber_when_streams_have_left(broker_url: str, job: RunningJob) -> None:
    subscriber = Subscriber(lambda: connect(broker_url), job.pool)
    first, second = subscriber.subscribe(job.id, 1000), subscriber.subscribe(job.id, 5000)
    assert subscriber.admitted_jobs() == {}
    first.is_admitted = second.is_admitted = True
    assert subscriber.admitted_jobs() == {5000: [job.id]}
    for subscription in (first, second, second):
        subscriber.unsubscribe(subscription)
    assert subscriber.admitted_jobs() == {}
