"""What is cleared away: after each batch, and from time to time what nobody needs any more."""

import logging

from api.batch.collection import STOP_CODE
from api.batch.desk import Desk
from api.batch.line_writer import LineWriter
from api.batch.records import Batch

log = logging.getLogger("headrace.batch")

_NUM_JOBS = 500  # looked at in one round trip


class Sweep:
    """Safe to share between threads, and to be cut short: what is left is swept the next time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lines = LineWriter(desk)

    def tidy(self, batch_id: str) -> None:
        """Let go of all that an ended batch used: jobs, parts, plan and the hold on its input file."""
        batch = self._desk.store.load(batch_id)
        # A broker that comes back without its last second must not find a batch whose parts are gone.
        self._desk.shared.queue.wait_durable()
        if batch is not None and not batch.has_ended:
            return
        if batch is not None:
            self._drop_jobs(batch)
            self._desk.files.release(batch.order.input_file_id, batch.id)
        self._desk.storage.delete_all(batch_id)
        self._desk.store.cleared(batch_id)

    def sweep(self, now_s: float) -> None:
        """Files past their time, and records of batches that ended long ago."""
        expired = self._desk.files.expire_due(now_s)
        self._desk.files.sweep(now_s)
        num_forgotten = self._desk.store.forget_ended(now_s - self._desk.settings.record_ttl_s)
        if expired or num_forgotten:
            log.info("swept", extra={"num_files": len(expired), "num_batches": num_forgotten})

    def _drop_jobs(self, batch: Batch) -> None:
        """All of them were collected and dropped, but where a driver died in between."""
        if not batch.plan:
            return
        queue, all_ids = self._desk.shared.queue, self._lines.all_job_ids(batch)
        for start in range(0, len(all_ids), _NUM_JOBS):
            ids = all_ids[start : start + _NUM_JOBS]
            kept = [(job_id, state) for job_id, state in zip(ids, queue.states(ids), strict=True) if state]
            for job_id, state in kept:
                if state in ("queued", "running"):
                    queue.cancel(job_id, STOP_CODE, "The batch of this request has ended.")
            queue.drop([job_id for job_id, _ in kept])
