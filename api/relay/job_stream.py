"""One client's view of one job, from before its admission to the moment it leaves."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import redis

from api.errors import ApiError
from api.metrics import ApiMetrics
from api.relay.client_watch import ClientWatch
from api.relay.dialects.interface import Chunk
from api.relay.dialects.registry import dialect_of
from api.relay.outcomes import error_of, job_lost
from api.relay.pace import Pace
from api.relay.subscriber import JobGone, Notice, Subscriber, follow
from api.settings import ApiSettings
from api.stream_view import StreamView
from worker.protocol.event import Delta, Event, Terminal
from worker.protocol.queue import JobQueue

log = logging.getLogger("headrace.relay")

_BEAT_S = 1.0


@dataclass(frozen=True)
class Relay:
    """What all streams of a process share."""

    queue: JobQueue
    subscriber: Subscriber
    client_watch: ClientWatch
    settings: ApiSettings
    metrics: ApiMetrics

    def watch_ms(self, view: StreamView) -> int:
        """How long the job outlives the API process that relays it: a resumable one gives its client time to return.

        0: as long as it takes.
        """
        if view.is_background:
            return 0
        return max(int(self.settings.watcher_grace_s * 1000), view.resume_grace_ms)

    def open(self, job_id: str, view: StreamView) -> "JobStream":
        """Subscribe to a job before it is admitted. The caller must see to `leave`."""
        return JobStream(self, job_id, view, is_owner=True)

    def reopen(self, job_id: str, view: StreamView) -> "JobStream":
        """Go on with an admitted job. Its first client may still be there, so leaving cancels nothing."""
        return JobStream(self, job_id, view, is_owner=False)


class JobStream:
    """Events and chunks of one job for one client. `leave` must be called at the end; it may be called twice."""

    def __init__(self, relay: Relay, job_id: str, view: StreamView, *, is_owner: bool) -> None:
        self.job_id = job_id
        self.view = view
        self.dialect = dialect_of(job_id, view)
        self.terminal: Terminal | None = None  # how the job ended, once that was relayed
        self.limits: dict[str, str] = {}  # headers that say what its tenant may still ask for
        self._relay = relay
        self._is_owner = is_owner
        self._subscription = relay.subscriber.subscribe(job_id, relay.watch_ms(view))
        self._readmit: Callable[[], None] | None = None
        self._stop_watching: Callable[[], None] = lambda: None
        self._has_ended = False
        self._has_left = False
        self._opened_s = time.monotonic()

    def confirm(self, readmit: Callable[[], None] | None = None) -> None:
        """The job is in Redis now. `readmit` puts it there again should Redis lose it before it starts."""
        self._readmit = readmit
        self._subscription.is_admitted = True

    def watch_client(self, client: socket.socket) -> None:
        """End the stream when the client hangs up, or reads nothing for the stall timeout."""
        stall_ms = int(self._relay.settings.stall_timeout_s * 1000)
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)
            self._stop_watching = self._relay.client_watch.add(client, self._subscription)
        except OSError:  # closed already
            self._subscription.notify(Notice.CLIENT_GONE)

    def stop(self) -> None:
        """End the stream from another thread, as if its client had left."""
        self._subscription.notify(Notice.STOPPED)

    def events(self) -> Iterator[list[Event]]:
        """All events from the first, in lists of those that were there at once; an empty list on quiet beats.

        Raises ClientGone, or ApiError when the job was lost.
        """
        pace = Pace(self._relay.metrics, self._opened_s)
        try:
            for events in self._surviving_events():
                pace.note(sum(isinstance(event, Delta) for event in events))
                if events and isinstance(events[-1], Terminal):
                    pace.tell()  # before the client knows of the end, and looks
                    self._note_end(events[-1])
                yield events
        finally:
            pace.tell()

    def chunks(self) -> Iterator[tuple[int, Chunk] | None]:
        """Numbered chunks from the first; None when nothing was sent for the ping interval.

        Raises ClientGone, or ApiError when the job ends otherwise than well and the dialect has no chunk to say so.
        """
        for chunks in self.chunk_lists():
            if not chunks:
                yield None
            yield from chunks

    def chunk_lists(self) -> Iterator[list[tuple[int, Chunk]]]:
        """See `chunks`: those that can be sent at once, an empty list in place of None."""
        number, sent_s = 0, time.monotonic()
        if opening := list(enumerate(self.dialect.opening(), 1)):
            number = len(opening)
            yield opening
        for events in self.events():
            if chunks := [chunk for event in events for chunk in self.dialect.chunks(event)]:
                yield list(enumerate(chunks, number + 1))
                number, sent_s = number + len(chunks), time.monotonic()
            elif time.monotonic() - sent_s >= self._relay.settings.ping_s:
                sent_s = time.monotonic()
                yield []
            if self.terminal is not None and not self.dialect.tells_bad_ends and (error := error_of(self.terminal)):
                raise error

    def leave(self) -> None:
        """Let go of everything. A job that has not ended is cancelled, or left its grace when it may be resumed.

        One that was reopened goes on for whoever else follows it, and ends by its watcher lease when nobody does.
        """
        if self._has_left:
            return
        self._has_left = True
        self._stop_watching()
        self._relay.subscriber.unsubscribe(self._subscription)
        if self._has_ended or not self._subscription.is_admitted:
            return
        try:
            if self.view.resume_grace_ms:
                self._relay.queue.watch([self.job_id], self.view.resume_grace_ms)
            elif self._is_owner and not self.view.is_background:
                self.cancel("client_gone", "The client closed the connection.")
        except redis.RedisError as error:
            # Nobody renews the job's watcher lease any more, so it ends by itself once the broker is back.
            log.warning("cancelling is left to the watcher lease", extra={"job_id": self.job_id, "error": repr(error)})

    def cancel(self, code: str, message: str) -> str:
        """Cancel the job; its state at that moment. Raises redis.RedisError."""
        state = self._relay.queue.cancel(self.job_id, code, message)
        if state in ("queued", "running"):
            self._relay.metrics.cancelled.labels(code).inc()
            log.info("job cancelled", extra={"job_id": self.job_id, "cause": code, "was": state})
        return state

    def _surviving_events(self) -> Iterator[list[Event]]:
        while True:
            try:
                yield from follow(self._subscription, self._relay.queue, _BEAT_S)
                return
            except JobGone as gone:
                if gone.has_started or self._readmit is None:
                    self._has_ended = True
                    log.error("the broker lost a job", extra={"job_id": self.job_id})
                    raise job_lost() from gone
                log.warning("the broker lost a waiting job: admitting it again", extra={"job_id": self.job_id})
                self._try_readmit(self._readmit)

    def _try_readmit(self, readmit: Callable[[], None]) -> None:
        self._subscription.is_admitted = False
        try:
            readmit()
        except ApiError:
            self._has_ended = True
            raise
        self._subscription.is_admitted = True

    def _note_end(self, terminal: Terminal) -> None:
        self._has_ended = True
        self.terminal = terminal
        metrics = self._relay.metrics
        metrics.ended.labels(terminal.state).inc()
        metrics.tokens.labels("prompt").inc(terminal.num_prompt_tokens)
        metrics.tokens.labels("completion").inc(terminal.num_completion_tokens)
        extra = {"job_id": self.job_id, "state": terminal.state, "code": terminal.code}
        log.info("stream ended", extra=extra)
