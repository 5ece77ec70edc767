"""Claims jobs on a thread of its own, so that a step never waits for the queue.

The step loop says how much room it has (offer) and takes what was claimed (take). One offer buys one claim: until the
loop has taken its jobs in and offered again, nothing more is claimed, so a claim never exceeds the pages.
"""

import logging
import threading
import time
from dataclasses import dataclass

import redis

from worker.held_jobs import HeldJobs
from worker.protocol.worker_lease import ClaimedJob, WorkerLease

log = logging.getLogger("headrace.claims")

_BELL_WAIT_S = 0.5  # between two looks at the queue when nobody rings
_PASS_PAUSE_S = 0.05  # time for another worker to answer the bell that was passed on
_RETRY_PAUSE_S = 0.2


@dataclass(frozen=True)
class Room:
    """What the engine can take in: tokens that its free pages hold, and places for sequences."""

    num_tokens: int
    num_jobs: int


class Claimer:
    """Hands jobs from the queue to the step loop. `claim_once` is one look at the queue."""

    def __init__(self, lease: WorkerLease, held: HeldJobs, page_size: int, fingerprint: str) -> None:
        self._lease = lease
        self._held = held
        self._page_size = page_size
        self._fingerprint = fingerprint
        self._changed = threading.Condition()
        self._room: Room | None = None
        self._last_room: Room | None = None
        self._claimed: list[ClaimedJob] = []
        self._claim_number = 0
        self._is_answered = True  # the last claim: an unanswered one is repeated under its number
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="claimer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, room: Room | None) -> None:
        """The room there is now; None while nothing may be claimed. Replaces the last offer."""
        with self._changed:
            if not self._claimed:  # what is claimed already has not been counted in this room
                self._room = room
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
                self._held.add(claimed, self._claim_number)
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

    def claim_once(self, room: Room) -> list[ClaimedJob]:
        """One claim. An unanswered one is repeated under its number, so that a lost reply loses nothing."""
        if self._is_answered:
            self._claim_number += 1
        self._is_answered = False
        claimed = self._lease.claim(
            self._claim_number,
            room_tokens=room.num_tokens,
            page_size=self._page_size,
            max_jobs=room.num_jobs,
            fingerprint=self._fingerprint,
        )
        with self._changed:
            self._is_answered = True
            if claimed:
                self._room = None
                self._claimed = claimed
                self._changed.notify_all()
        return claimed

    def _run(self) -> None:
        has_heard = False
        while (room := self._next_room()) is not None:
            try:
                has_heard = not self.claim_once(room) and self._listen(has_heard)
            except redis.RedisError as error:
                log.warning("claiming is delayed", extra={"error": repr(error)})
                time.sleep(_RETRY_PAUSE_S)

    def _listen(self, has_heard: bool) -> bool:
        """After a look at the queue that brought nothing: whether the bell rings before it is time for the next.

        A busy worker listens as an idle one does. When the job rung for is too large for its room, others are rung for.
        """
        if has_heard and self._lease.pass_bell():
            time.sleep(_PASS_PAUSE_S)
        return self._lease.wait_for_bell(_BELL_WAIT_S)

    def _next_room(self) -> Room | None:
        """Waits for an offer; None when it is time to stop. An unanswered claim is repeated without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._room is not None or not self._is_answered)
            self._last_room = self._room or self._last_room
            return None if self._is_stopping else self._last_room
