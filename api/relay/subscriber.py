"""One Redis reader per API process, which hands each job's events to the streams that follow it.

Pub/sub carries the speed and the replay list carries the truth: a stream that lags, sees a gap or was cut off from
Redis goes back to the list, so a slow client costs a bounded queue and never a token.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum

import redis

from worker.protocol.event import Event, Terminal
from worker.protocol.event_channel import EventChannel
from worker.protocol.queue import JobQueue

log = logging.getLogger("headrace.relay")

MAX_QUEUED_EVENTS = 256
_FRAME_WAIT_S = 1.0
_RETRY_PAUSE_S = 0.2
_REREAD_AFTER_S = 5.0  # so long after the last event, in case a frame went missing without a trace


class Notice(Enum):
    """What a stream may be told besides its events."""

    REREAD = "events were missed: go back to the list"
    CLIENT_GONE = "the client closed its connection"
    JOB_GONE = "Redis does not know the job any more"
    STOPPED = "the stream was told to end"


class ClientGone(Exception):
    """Nobody reads this stream any more."""


class JobGone(Exception):
    """The job vanished from Redis; `has_started` says whether any of its events were seen."""

    def __init__(self, has_started: bool) -> None:
        super().__init__("the job vanished from the queue")
        self.has_started = has_started


class Subscription:
    """One stream's live events. Bounded: when the stream lags it loses them and re-reads the list."""

    def __init__(self, job_id: str, watch_ms: int) -> None:
        self.job_id = job_id
        self.watch_ms = watch_ms  # how long the job stays wanted should this process die
        self.is_admitted = False  # until then Redis need not know the job
        self._items: queue.SimpleQueue[tuple[int, Event] | Notice] = queue.SimpleQueue()
        self._is_behind = False

    def put(self, seq: int, event: Event) -> None:
        if self._is_behind:
            return
        if self.num_queued >= MAX_QUEUED_EVENTS:
            self._is_behind = True
            self._items.put(Notice.REREAD)
        else:
            self._items.put((seq, event))

    @property
    def num_queued(self) -> int:
        return self._items.qsize()

    def notify(self, notice: Notice) -> None:
        self._items.put(notice)

    def take(self, timeout_s: float) -> list[tuple[int, Event] | Notice]:
        """The live events and notices that are there, after waiting for one; none after a quiet `timeout_s`."""
        try:
            items = [self._items.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._items.empty():
            items.append(self._items.get())
        return items

    def catch_up(self) -> None:
        """Forget live events, for the list is about to be read. Notices other than REREAD stay."""
        kept: list[Notice] = []
        self._is_behind = False
        while not self._items.empty():
            item = self._items.get()
            if isinstance(item, Notice) and item is not Notice.REREAD:
                kept.append(item)
        for notice in kept:
            self._items.put(notice)


class Subscriber:
    """The process's one reader of frames. `subscriptions` is what it serves now."""

    def __init__(self, new_client: Callable[[], redis.Redis], pool: str) -> None:
        self._new_client = new_client
        self._pool = pool
        self._by_job: dict[str, list[Subscription]] = {}
        self._is_connected = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def subscribe(self, job_id: str, watch_ms: int) -> Subscription:
        """Start to receive a job's events, before it is admitted or before its list is read."""
        self._start_once()
        subscription = Subscription(job_id, watch_ms)
        self._by_job.setdefault(job_id, []).append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """May be called twice."""
        of_job = self._by_job.get(subscription.job_id, [])
        if subscription in of_job:
            of_job.remove(subscription)
        if not of_job:
            self._by_job.pop(subscription.job_id, None)

    def admitted_jobs(self) -> dict[int, list[str]]:
        """The jobs that somebody follows and that Redis must know, by how long they stay wanted (ms)."""
        jobs: dict[int, list[str]] = {}
        for job_id, of_job in self._by_job.items():
            if graces := [subscription.watch_ms for subscription in of_job if subscription.is_admitted]:
                jobs.setdefault(max(graces), []).append(job_id)
        return jobs

    def notify(self, job_id: str, notice: Notice) -> None:
        for subscription in list(self._by_job.get(job_id, ())):
            subscription.notify(notice)

    def _start_once(self) -> None:
        # Not in the constructor: a thread started before gunicorn forks would be lost in the child.
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="subscriber", daemon=True)
                self._thread.start()
        # Without a broker there is nothing to wait for: admission will say so.
        self._is_connected.wait(timeout=1.0)

    def _run(self) -> None:
        while True:
            try:
                channel = EventChannel(self._new_client(), self._pool, _FRAME_WAIT_S)
                self._is_connected.set()
                self._tell_all_to_reread()
                while True:
                    self._dispatch(channel.next_frame())
            except Exception as error:
                # Not only RedisError: should this thread end, every stream of the process would stand still.
                self._is_connected.clear()
                log.warning("the event channel was cut off", extra={"error": repr(error)})
                time.sleep(_RETRY_PAUSE_S)

    def _dispatch(self, frame: list[tuple[str, int, Event]]) -> None:
        for job_id, seq, event in frame:
            for subscription in self._by_job.get(job_id, ()):
                subscription.put(seq, event)

    def _tell_all_to_reread(self) -> None:
        for job_id in list(self._by_job):
            self.notify(job_id, Notice.REREAD)


def follow(subscription: Subscription, job_queue: JobQueue, beat_s: float) -> Iterator[list[Event]]:
    """Every event of the job from the first, once each and in order, in lists of those that were there at once.

    An empty list tells of a quiet `beat_s`. Ends after the Terminal. Raises ClientGone and JobGone. While Redis is away
    it yields empty lists and tries again.
    """
    seq = 0
    while True:
        subscription.catch_up()
        try:
            missed = job_queue.replay(subscription.job_id, seq)
        except redis.RedisError:
            yield []
            for item in subscription.take(_RETRY_PAUSE_S):
                _obey(item, seq)
            continue
        seq += len(missed)
        for first in range(0, len(missed), MAX_QUEUED_EVENTS):
            yield missed[first : first + MAX_QUEUED_EVENTS]
        if missed and isinstance(missed[-1], Terminal):
            return
        for live in _live(subscription, seq, beat_s):
            seq += len(live)
            yield live
            if live and isinstance(live[-1], Terminal):
                return


def _live(subscription: Subscription, seq: int, beat_s: float) -> Iterator[list[Event]]:
    """Live events after `seq` until the list has to be read again."""
    quiet_s = 0.0
    while quiet_s < _REREAD_AFTER_S:
        items = subscription.take(beat_s)
        events, must_reread = _in_order(items, seq)
        if events or not items:
            quiet_s = 0.0 if events else quiet_s + beat_s
            yield events
        seq += len(events)
        if must_reread:
            for item in items:
                _obey(item, seq)
            return


def _in_order(items: list[tuple[int, Event] | Notice], seq: int) -> tuple[list[Event], bool]:
    """The events that follow `seq` without a gap, and whether what came after them sends the stream to the list."""
    events: list[Event] = []
    for item in items:
        if isinstance(item, Notice) or item[0] > seq + len(events) + 1:
            return events, True
        if item[0] == seq + len(events) + 1:
            events.append(item[1])
    return events, False


def _obey(item: tuple[int, Event] | Notice, seq: int) -> None:
    if item in (Notice.CLIENT_GONE, Notice.STOPPED):
        raise ClientGone
    if item is Notice.JOB_GONE:
        raise JobGone(has_started=seq > 0)
