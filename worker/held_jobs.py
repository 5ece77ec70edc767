"""The jobs this worker owns, as its three threads see them: the step loop, the publisher and the lease keeper.

step loop     claims (add), appends what a step made (append), drops what the others found lost (take_lost), lets go of
              jobs that make way (forget)
publisher     re-reads events of a job whose list came out short (events_from), reports lost jobs, closes ended ones
lease keeper  lists the jobs with the last claim whose reply arrived (listing), reports lost jobs
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from worker.protocol.event import Event, Terminal
from worker.protocol.worker_lease import ClaimedJob, Row


@dataclass
class _Held:
    fence: int
    events: list[Event] = field(default_factory=list)  # all of them, from the first: the list in Redis can be cut


class HeldJobs:
    """Thread-safe bookkeeping; knows neither Redis nor the engine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._lost: list[str] = []
        self._claim_number = 0

    def add(self, claimed: list[ClaimedJob], claim_number: int) -> None:
        with self._lock:
            self._claim_number = claim_number
            for one in claimed:
                self._held[one.job.id] = _Held(one.fence, list(one.replay))
            # Claimed again before its loss was acted upon: what is lost is the former hold.
            again = {one.job.id for one in claimed}
            self._lost = [job_id for job_id in self._lost if job_id not in again]

    def append(self, job_id: str, events: list[Event]) -> list[Row]:
        """The rows to publish; none when the job was lost meanwhile."""
        with self._lock:
            held = self._held.get(job_id)
            if held is None:
                return []
            first = len(held.events) + 1
            held.events.extend(events)
            return [Row(job_id, held.fence, first + i, event) for i, event in enumerate(events)]

    def events_from(self, job_id: str, seq: int) -> list[Row]:
        with self._lock:
            held = self._held.get(job_id)
            events = held.events[seq - 1 :] if held else []
            return [Row(job_id, held.fence, seq + i, event) for i, event in enumerate(events)] if held else []

    def close_ended(self, rows: list[Row]) -> None:
        """Forget the jobs whose terminal event is in Redis."""
        with self._lock:
            for row in rows:
                if isinstance(row.event, Terminal) and self._holds(row.job_id, row.fence):
                    del self._held[row.job_id]

    def report_lost(self, lost: Iterable[tuple[str, int]]) -> None:
        """These jobs belong, under these fences, to this worker no more. It may hold one again under a newer fence."""
        with self._lock:
            for job_id, fence in lost:
                if self._holds(job_id, fence):
                    del self._held[job_id]
                    self._lost.append(job_id)

    def forget(self, job_ids: Iterable[str]) -> None:
        """The engine has let go of these jobs before their end. Redis, which lists them still, will hand them on."""
        with self._lock:
            for job_id in job_ids:
                self._held.pop(job_id, None)

    def take_lost(self) -> list[str]:
        """What was reported lost since the last call."""
        with self._lock:
            lost, self._lost = self._lost, []
            return lost

    def listing(self) -> tuple[dict[str, int], int]:
        """The jobs held with their fences, and the number of the last claim whose reply arrived, read together."""
        with self._lock:
            return {job_id: held.fence for job_id, held in self._held.items()}, self._claim_number

    def _holds(self, job_id: str, fence: int) -> bool:
        held = self._held.get(job_id)
        return held is not None and held.fence == fence

    def __len__(self) -> int:
        with self._lock:
            return len(self._held)
