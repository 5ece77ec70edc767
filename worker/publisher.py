"""Publishes what each step made, on a thread of its own: the next step does not wait for Redis."""

import logging
import queue
import threading
import time

import redis

from worker.held_jobs import HeldJobs
from worker.protocol.worker_lease import Row, WorkerLease

log = logging.getLogger("headrace.publisher")

_MAX_ROWS = 2048  # one call of the script stays short even when a broker outage has piled steps up
_RETRY_PAUSE_S = 0.2


class Publisher:
    """One call of publish_step per engine step, in order, repeated until Redis has taken it."""

    def __init__(self, lease: WorkerLease, held: HeldJobs) -> None:
        self._lease = lease
        self._held = held
        self._rows: queue.SimpleQueue[list[Row] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._num_pending = 0
        self._idle = threading.Condition()

    def start(self) -> None:
        self._thread.start()

    def put(self, rows: list[Row]) -> None:
        """Hand over the rows of one step. Raises RuntimeError when publishing has broken down for good."""
        if not self._thread.is_alive():
            raise RuntimeError("the publisher's thread has died")
        if rows:
            with self._idle:
                self._num_pending += 1
            self._rows.put(rows)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all is published. False when Redis did not take it in time."""
        with self._idle:
            return self._idle.wait_for(lambda: self._num_pending == 0, timeout_s)

    def stop(self) -> None:
        self._rows.put(None)
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while (rows := self._rows.get()) is not None:
            num_steps = 1
            while len(rows) < _MAX_ROWS and not self._rows.empty():
                more = self._rows.get()
                if more is None:
                    return
                rows = rows + more
                num_steps += 1
            self._publish(rows)
            with self._idle:
                self._num_pending -= num_steps
                self._idle.notify_all()

    def _publish(self, rows: list[Row]) -> None:
        while rows:
            try:
                published = self._lease.publish_step(rows)
            except redis.RedisError as error:
                log.warning("publishing is delayed", extra={"error": repr(error), "num_rows": len(rows)})
                time.sleep(_RETRY_PAUSE_S)
                continue
            is_short = published.short.keys()
            self._held.close_ended([row for row in rows if row.job_id not in is_short])
            # A job whose terminal event had been taken by an earlier, unanswered call counts as lost too: it is closed.
            self._held.report_lost({(row.job_id, row.fence) for row in rows if row.job_id in published.lost})
            rows = [
                row for job_id, length in published.short.items() for row in self._held.events_from(job_id, length + 1)
            ]
