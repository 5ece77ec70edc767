"""Claims jobs on a thread of its own, so that a step never waits for the queue.

The step loop says how much room it has (offer) and takes what was claimed (take). One offer buys one claim: until the
loop has taken its jobs in and offered again, nothing more is claimed, so a claim never exceeds the pages. Only
interactive jobs can still follow batch jobs, which make way for them: else each would wait for a step more.
"""

import logging
import threading
import time
from collections.abc import Mapping

import redis

from worker.held_jobs import HeldJobs
from worker.protocol.job import JobClass
from worker.protocol.worker_lease import ClaimedJob, Room, WorkerLease

log = logging.getLogger("headrace.claims")

_BELL_WAIT_S = 0.5  # between two looks at the queue when nobody rings
_SHORT_WAIT_S = 0.1  # the same while a class has no room, which may change with every step
_PASS_PAUSE_S = 0.05  # time for another worker to answer the bell that was passed on
_RETRY_PAUSE_S = 0.2


Rooms = Mapping[JobClass, Room]


class Claimer:
    """Hands jobs from the queue to the step loop. `claim_once` is one look at the queue."""

    def __init__(self, lease: WorkerLease, held: HeldJobs, page_size: int, fingerprint: str) -> None:
        self._lease = lease
        self._held = held
        self._page_size = page_size
        self._fingerprint = fingerprint
        self._changed = threading.Condition()
        self._rooms: Rooms | None = None
        self._last_rooms: Rooms | None = None
        self._claimed: list[ClaimedJob] = []
        self._claim_number = 0
        self._claimed_number = 0  # of the last claim whose jobs are among the claimed ones
        self._is_answered = True  # the last claim: an unanswered one is repeated under its number
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="claimer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, rooms: Rooms | None) -> None:
        """The room there is now, by class; None while nothing may be claimed. Replaces the last offer."""
        with self._changed:
            if not self._claimed:  # what is claimed already has not been counted in this room
                self._rooms = rooms
                self._changed.notify_all()

    def take(self, wait_s: float) -> list[ClaimedJob]:
        """What was claimed since the last call, after at most `wait_s`; from now on held.

        Raises RuntimeError when claiming has broken down for good.
        """
        with self._changed:
            self._changed.wait_for(lambda: bool(self._claimed), wait_s)
            if self._has_started and not self._thread.is_alive() and not self._is_stopping:
                raise RuntimeError("the claimer's thread has died")
            claimed, self._claimed = self._claimed, []
            # Held only now, by the thread that drives the engine: what the engine computed of a job under an older
            # fence must not be taken for the new one's.
            if claimed:
                self._held.add(claimed, self._claimed_number)
            return claimed

    def stop(self) -> None:
        """No claim is on its way when this returns. A leaving worker hands back what was claimed and not taken."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        if self._has_started:
            self._thread.join(timeout=10)

    @property
    def _has_started(self) -> bool:
        return self._thread.ident is not None

    def claim_once(self, rooms: Rooms) -> list[ClaimedJob]:
        """One claim. An unanswered one is repeated under its number, so that a lost reply loses nothing."""
        if self._is_answered:
            self._claim_number += 1
        self._is_answered = False
        claimed = self._lease.claim(
            self._claim_number, rooms=rooms, page_size=self._page_size, fingerprint=self._fingerprint
        )
        with self._changed:
            self._is_answered = True
            if claimed:
                self._rooms = _left_after(claimed, self._rooms)  # a later offer than the one claimed for, if any
                self._claimed += claimed
                self._claimed_number = self._claim_number
                self._changed.notify_all()
        return claimed

    def _run(self) -> None:
        heard: JobClass | None = None
        while (rooms := self._next_rooms()) is not None:
            try:
                heard = None if self.claim_once(rooms) else self._listen(rooms, heard)
            except redis.RedisError as error:
                log.warning("claiming is delayed", extra={"error": repr(error)})
                time.sleep(_RETRY_PAUSE_S)

    def _listen(self, rooms: Rooms, heard: JobClass | None) -> JobClass | None:
        """After a look at the queue that brought nothing: whose bell rings before it is time for the next.

        A busy worker listens as an idle one does. When the job rung for is too large for its room, others are rung for,
        and the bell is left to them for a moment; more urgent ones are heard all the same.
        """
        hears = [job_class for job_class in JobClass if rooms[job_class].num_jobs > 0]
        wait_s = _BELL_WAIT_S if len(hears) == len(JobClass) else _SHORT_WAIT_S
        if heard is not None and self._lease.pass_bell(heard):
            hears, wait_s = [job_class for job_class in hears if job_class < heard], _PASS_PAUSE_S
        if not hears:
            time.sleep(wait_s)
            return None
        return self._lease.wait_for_bell(hears, wait_s)

    def _next_rooms(self) -> Rooms | None:
        """Waits for an offer; None when it is time to stop. An unanswered claim is repeated without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._rooms is not None or not self._is_answered)
            self._last_rooms = self._rooms or self._last_rooms
            return None if self._is_stopping else self._last_rooms


def _left_after(claimed: list[ClaimedJob], rooms: Rooms | None) -> Rooms | None:
    """What may be claimed before the loop has taken these in: batch jobs leave all room of interactive ones."""
    if rooms is None or any(one.job.job_class == JobClass.INTERACTIVE for one in claimed):
        return None
    return {**rooms, JobClass.BATCH: Room(0, 0)}
