"""The worker's loop: drop what was lost, take in what was claimed, compute a step, hand it to the publisher."""

import logging
import time
from dataclasses import asdict, dataclass
from typing import Any

import redis
from msgspec.structs import replace

from worker.claimer import Claimer, Rooms
from worker.control import Handlers
from worker.engine.engine import Engine, JobOutput
from worker.engine.job_check import JobRejected
from worker.held_jobs import HeldJobs
from worker.lease_keeper import Info
from worker.metrics import WorkerMetrics
from worker.protocol.event import Event, Terminal
from worker.protocol.worker_lease import ClaimedJob, WorkerLease
from worker.publisher import Publisher

log = logging.getLogger("headrace.worker")

_IDLE_WAIT_S = 0.5


@dataclass(frozen=True)
class Ports:
    """What the loop hands its results to, and whom it asks for work."""

    lease: WorkerLease
    claimer: Claimer
    held: HeldJobs
    publisher: Publisher
    metrics: WorkerMetrics


@dataclass
class Flags:
    """Set by signal handlers and the control mailbox, read between steps."""

    is_draining: bool = False
    is_stopping: bool = False


class WorkerLoop:
    """Drives one engine from one pool's queue. `tick` is one turn; only this thread touches the engine."""

    def __init__(self, engine: Engine, ports: Ports) -> None:
        self._engine = engine
        self._lease = ports.lease
        self._claimer = ports.claimer
        self._held = ports.held
        self._publisher = ports.publisher
        self._metrics = ports.metrics
        self._metrics.observe(engine.stats())  # who scrapes before the first turn has ended finds all pages free
        self._turn_began_s = time.monotonic()
        self.flags = Flags()

    def run(self, grace_s: float) -> None:
        """Serve until asked to stop, then finish what runs within `grace_s`."""
        while not self.flags.is_stopping:
            self.tick()
        deadline_s = time.monotonic() + grace_s
        log.info("stopping: finishing the running jobs", extra={"num_jobs": len(self._held)})
        self.flags.is_draining = True
        while self._engine.has_work and time.monotonic() < deadline_s:
            self.tick()

    def tick(self) -> None:
        """One turn of the loop."""
        self._turn_began_s = time.monotonic()
        self._drop_lost()
        self._take_in()
        if self._engine.has_work:
            self._step()
        else:
            self._metrics.observe(self._engine.stats())

    def describe(self, step_limit_s: float) -> Info | None:
        """The worker's state for its lease, or None when the current turn takes suspiciously long."""
        age_s = time.monotonic() - self._turn_began_s
        if age_s > step_limit_s:
            log.error("the engine is stuck: its lease is given up", extra={"step_age_s": age_s})
            return None
        return {
            "pool_tokens": self._engine.num_pages * self._engine.page_size,
            "page_size": self._engine.page_size,
            "max_context": self._engine.max_context,
            "fingerprint": self._engine.fingerprint,
            "step_age_s": round(age_s, 3),
            "is_draining": int(self.flags.is_draining),
        }

    def control_handlers(self) -> Handlers:
        """What operators may ask of this worker. They run on the mailbox's thread, so they only read and set flags."""
        return {"ping": lambda: "pong", "stats": self._stats, "drain": self._drain, "resume": self._resume}

    def _stats(self) -> dict[str, Any]:
        return {
            **asdict(self._engine.stats()),
            "num_jobs": len(self._held),
            "is_draining": self.flags.is_draining,
            "turn_age_s": round(time.monotonic() - self._turn_began_s, 3),
        }

    def _drain(self) -> str:
        self.flags.is_draining = True
        log.info("draining: no more claims until told to resume")
        return "draining"

    def _resume(self) -> str:
        self.flags.is_draining = False
        return "serving"

    def _drop_lost(self) -> None:
        for job_id in self._held.take_lost():
            if self._engine.cancel(job_id):
                self._metrics.num_dropped.inc()
                log.info("job dropped: cancelled or owned elsewhere", extra={"job_id": job_id})

    def _take_in(self) -> None:
        """Start what was claimed meanwhile; without anything to compute, wait for it."""
        self._claimer.offer(self._rooms())
        taken = self._claimer.take(0.0 if self._engine.has_work else _IDLE_WAIT_S)
        for claimed in taken:
            self._start(claimed)
        self._hand_back()
        if taken:  # the next claim runs beside the step that now comes, not only beside the one after it
            self._claimer.offer(self._rooms())

    def _rooms(self) -> Rooms | None:
        """What the engine can take in, or None when it shall not or cannot take anything."""
        rooms = self._engine.rooms()
        has_any = any(room.num_tokens > 0 and room.num_jobs > 0 for room in rooms.values())
        return rooms if has_any and not self.flags.is_draining else None

    def _hand_back(self) -> None:
        """Let go of the batch jobs that had to make way. The next renewal puts them back into the queue."""
        surplus = self._engine.surplus()
        if surplus:
            self._held.forget(surplus)
            for job_id in surplus:
                self._engine.cancel(job_id)
            log.info("batch jobs made way", extra={"num_handed_back": len(surplus)})

    def _start(self, claimed: ClaimedJob) -> None:
        job = claimed.job
        extra = {"job_id": job.id, "num_attempts": claimed.num_attempts, "num_replayed": len(claimed.replay)}
        # The job may have been lost and claimed again before word of the loss got here. The replay list is the truth.
        self._engine.cancel(job.id)
        try:
            self._engine.add(job, claimed.replay)
        except JobRejected as refusal:
            log.warning("job refused by the engine", extra={"job_id": job.id, "reason": str(refusal)})
            self._refuse(claimed, str(refusal))
            return
        self._metrics.num_claimed.inc()
        log.info("job started", extra=extra)

    def _refuse(self, claimed: ClaimedJob, reason: str) -> None:
        self._held.report_lost([(claimed.job.id, claimed.fence)])
        try:
            self._lease.finish(claimed.job.id, claimed.fence, Terminal("failed", "invalid_request", reason))
        except redis.RedisError as error:
            # Not held any more, so the next renewal puts it back into the queue and it is refused again.
            log.warning("refusing is delayed", extra={"job_id": claimed.job.id, "error": repr(error)})

    def _step(self) -> None:
        with self._metrics.step_seconds.time():
            outputs = self._engine.step()
        self._publisher.put([row for output in outputs for row in self._held.append(output.job_id, _events(output))])
        for output in outputs:
            if output.terminal is not None:
                self._log_end(output.job_id, output.terminal)
        self._metrics.observe(self._engine.stats())

    def _log_end(self, job_id: str, terminal: Terminal) -> None:
        self._metrics.num_finished.labels(terminal.state).inc()
        extra = {"job_id": job_id, "state": terminal.state, "num_completion_tokens": terminal.num_completion_tokens}
        log.info("job ended", extra=extra)

    def leave(self) -> None:
        """Hand back what still runs, with its tokens, and give up the lease."""
        fences, _ = self._held.listing()
        try:
            num_back = self._lease.requeue(list(fences.items()), is_leaving=True)
            log.info("stopped", extra={"num_handed_back": num_back})
        except redis.RedisError as error:
            log.error("jobs could not be handed back: they return when the lease ends", extra={"error": repr(error)})


def _events(output: JobOutput) -> list[Event]:
    if output.terminal is None:
        return [*output.deltas]
    ended_s = unix_s() if output.terminal.state == "succeeded" else 0
    return [*output.deltas, replace(output.terminal, ended_s=ended_s)]


def unix_s() -> int:
    return int(time.time())
