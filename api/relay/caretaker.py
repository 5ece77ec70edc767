"""What an API process does once a second for the queue: say which jobs are wanted, and tick the queue's clock."""

import logging
import threading
import time

import redis

from api.metrics import ApiMetrics
from api.relay.subscriber import Notice, Subscriber
from api.settings import ApiSettings
from worker.protocol.queue import JobQueue

log = logging.getLogger("headrace.relay")

_TICKS_A_LEASE = 5


class Caretaker:
    """Runs on a thread from the first request on (a thread started before gunicorn forks would be lost)."""

    def __init__(self, queue: JobQueue, subscriber: Subscriber, settings: ApiSettings, metrics: ApiMetrics) -> None:
        self._queue = queue
        self._subscriber = subscriber
        self._settings = settings
        self._metrics = metrics
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def start_once(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="caretaker", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(min(1.0, self._settings.lease_s / _TICKS_A_LEASE))
            try:
                self.beat()
            except redis.RedisError as error:
                log.warning("the broker is away", extra={"error": repr(error)})
            except Exception:
                # Without this thread the process's jobs would be taken for abandoned.
                log.exception("the caretaker failed")

    def beat(self) -> None:
        """One round. Raises redis.RedisError."""
        for watch_ms, jobs in self._subscriber.admitted_jobs().items():
            for job_id in self._queue.watch(jobs, watch_ms):
                self._subscriber.notify(job_id, Notice.JOB_GONE)
        moved = self._queue.requeue_expired(int(self._settings.lease_s * 1000), self._settings.max_attempts)
        self._metrics.count_moves(moved)
