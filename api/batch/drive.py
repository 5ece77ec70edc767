"""The life of a batch, in small steps that may be taken by anyone, at any time, and again.

A step looks at what Redis says of the batch and does the next thing. It never waits for an answer to be generated, and
nothing is remembered between steps but in Redis: a driver that dies in the middle of one has done it or has not.
"""

import contextlib
import logging
import time

from redis.exceptions import LockError, OutOfMemoryError

from api.batch.assembly import Assembly
from api.batch.collection import STOP_CODE, Collection
from api.batch.desk import NUM_A_STEP, Desk
from api.batch.line_writer import LineWriter
from api.batch.plan import encoded_plan
from api.batch.records import Batch, LineError
from api.batch.rows import STOPPED, Part, unanswered_row
from api.batch.store import Advance, Plan
from api.batch.validation import Findings, Unusable, check_lines

log = logging.getLogger("headrace.batch")

SLICE_S = 3.0
_LOST = LineError("input_file_lost", "The storage has lost the batch's input file, or what was made of it.")


class Driver:
    """Safe to share between threads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.store
        self._lines = LineWriter(desk)
        self._collection = Collection(desk, self._lines)
        self._assembly = Assembly(desk)

    def drive(self, batch_id: str, for_s: float = SLICE_S) -> bool:
        """Take steps for some seconds, or until there is nothing to do. Whether there may be more to do at once.

        Raises redis.RedisError or StorageUnavailable.
        """
        lock = self._store.lock(batch_id)
        try:
            if not lock.acquire():
                return False
        except OutOfMemoryError:  # a step makes room; two drivers at once only do more than is needed
            return self.step(batch_id)
        until_s = time.monotonic() + for_s
        try:
            while self.step(batch_id):
                if time.monotonic() >= until_s:
                    return True
                lock.reacquire()
            return False
        except LockError:  # it took so long that another may be at it by now
            return True
        finally:
            with contextlib.suppress(LockError):
                lock.release()

    def step(self, batch_id: str) -> bool:
        """The next thing to do for the batch. Whether anything was done."""
        batch = self._store.load(batch_id)
        if batch is None or batch.has_ended:
            return False
        if batch.is_due:
            log.info("the batch's time is over", extra={"batch_id": batch.id})
            self._store.stop(batch.id, "expired")
            return True
        try:
            return self._stepped(batch)
        except FileNotFoundError as error:
            log.error("a batch's objects are gone", extra={"batch_id": batch.id, "error": repr(error)})
            return self._assembly.fail(batch, [*batch.errors, _LOST], batch.counts["total"])

    def _stepped(self, batch: Batch) -> bool:
        if not batch.plan:
            return self._validate(batch)
        if batch.status == "in_progress":
            did_collect = self._collection.collect(batch)
            return self._submit(batch) or did_collect or self._store.drain(batch.id)
        if batch.cause and (self._stop_jobs(batch) or self._skip_rest(batch)):
            return True
        return self._assembly.finish(batch)

    def _validate(self, batch: Batch) -> bool:
        findings, part = Findings(), Part(self._desk.storage, batch.id)
        max_bytes = self._desk.shared.settings.max_body_bytes
        try:
            with self._desk.storage.open(batch.order.input_file_id) as file, part:
                for bad in check_lines(file, batch.order.endpoint, max_bytes, findings):
                    part.add(unanswered_row(batch, bad.number, bad.custom_id, bad.error))
        except Unusable as error:
            return self._assembly.fail(batch, error.errors, error.total)
        plan = Plan(
            name=self._assembly.store_plan(batch.id, encoded_plan(findings.good)),
            num_planned=len(findings.good),
            total=findings.total,
            failed=findings.num_bad,
            model=findings.model,
            errors=findings.errors,
            error_part=part.name,
        )
        self._store.plan(batch.id, plan)
        counts = {"num_lines": findings.total, "num_bad": findings.num_bad}
        log.info("the batch's file was read", extra={"batch_id": batch.id, **counts})
        return True

    def _submit(self, batch: Batch) -> bool:
        """Lines from the cursor on, as many as there is room for. All active batches share the room."""
        if batch.cursor == batch.num_planned:
            return False
        share = max(1, self._desk.settings.in_flight // max(1, len(self._store.active())))
        room = min(share - len(self._store.open_places(batch.id)), NUM_A_STEP)
        places = range(batch.cursor, min(batch.cursor + room, batch.num_planned))
        if not places:
            return False
        with Part(self._desk.storage, batch.id) as part:
            opened, refused = self._lines.run(batch, places, part)
        end = batch.cursor + len(opened) + len(refused)
        if end == batch.cursor:
            return False
        return self._store.advance(batch, Advance(batch.cursor, end, opened, part.num_rows, part.name))

    def _stop_jobs(self, batch: Batch) -> bool:
        """End what is open of a batch that was stopped, and collect some of it. False when nothing is."""
        places = self._store.open_places(batch.id)
        # What a driver admitted and could not say before the batch was stopped is behind the cursor, and not far.
        unsaid = range(batch.cursor, min(batch.cursor + NUM_A_STEP, batch.num_planned))
        for job_id in self._lines.job_ids(batch, (*places, *unsaid)):
            self._desk.shared.queue.cancel(job_id, STOP_CODE, STOPPED[batch.cause].message)
        if not places:
            return False
        return self._collection.close(batch, places[:NUM_A_STEP])

    def _skip_rest(self, batch: Batch) -> bool:
        """The rows of all lines that were not begun. False when there is none."""
        if batch.cursor == batch.num_planned:
            return False
        with Part(self._desk.storage, batch.id) as part:
            self._lines.skip(batch, range(batch.cursor, batch.num_planned), part)
        self._store.advance(batch, Advance(batch.cursor, batch.num_planned, (), part.num_rows, part.name))
        return True
