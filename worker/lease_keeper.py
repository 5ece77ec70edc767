"""Renews the worker's lease on a timer and ticks the queue's clock, on a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import redis

from worker.held_jobs import HeldJobs
from worker.protocol.queue import JobQueue
from worker.protocol.worker_lease import WorkerLease

log = logging.getLogger("headrace.lease")

Info = dict[str, str | int | float]
# Cancelled jobs are noticed with a renewal even while a long prefill publishes nothing.
_RENEW_EVERY_S = 0.25
_TICKS_A_LEASE = 5


class LeaseKeeper:
    """Keeps the lease while `describe` returns the worker's state; None says it is stuck and must lose its lease."""

    def __init__(
        self, lease: WorkerLease, queue: JobQueue, held: HeldJobs, describe: Callable[[], Info | None], limits: "Limits"
    ) -> None:
        self._lease = lease
        self._queue = queue
        self._held = held
        self._describe = describe
        self._limits = limits
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._ticked_s = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.beat(time.monotonic())
            except redis.RedisError as error:
                log.warning("the lease could not be renewed", extra={"error": repr(error)})
            except Exception:
                # Without this thread the worker would lose its jobs while it computes them.
                log.exception("renewing failed")
            self._stopped.wait(_RENEW_EVERY_S)

    def beat(self, now_s: float) -> None:
        """One renewal, and the queue's clock when it is due. Raises redis.RedisError."""
        info = self._describe()
        if info is not None:
            fences, claim_number = self._held.listing()
            lost = self._lease.renew(list(fences), claim_number, info)
            self._held.report_lost((job_id, fences[job_id]) for job_id in lost)
        if now_s - self._ticked_s >= self._limits.lease_ms / 1000 / _TICKS_A_LEASE:
            self._ticked_s = now_s
            moved = self._queue.requeue_expired(self._limits.lease_ms, self._limits.max_attempts)
            if any(moved.values()):
                log.info("the queue's clock moved jobs", extra=dict(moved))


@dataclass(frozen=True)
class Limits:
    """What the queue's clock needs to know."""

    lease_ms: int
    max_attempts: int
