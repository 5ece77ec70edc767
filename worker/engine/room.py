"""Room: what the engine can take in beside what it holds, by class, and what it holds in vain."""

from collections.abc import Collection, Iterable, Mapping

from worker.engine.backfill import Backfill
from worker.engine.held_job import HeldJob
from worker.engine.page_keeper import PageKeeper
from worker.engine.scheduler import Scheduler
from worker.engine.sequence import Sequence
from worker.protocol.job import JobClass
from worker.protocol.worker_lease import Room


class RoomBook:
    """A sequence is promised its prompt and the tokens it is expected to generate, in whole pages.

    To an interactive job all is free that no interactive sequence holds or is promised: batch sequences make way.
    """

    def __init__(self, pages: PageKeeper, scheduler: Scheduler, backfill: Backfill) -> None:
        self._pages = pages
        self._scheduler = scheduler
        self._backfill = backfill

    def rooms(self, jobs: Iterable[HeldJob]) -> dict[JobClass, Room]:
        """Room for each class beside these jobs, which are all that the engine holds."""
        sequences = [sequence for held in jobs for sequence in held.unfinished]
        urgent = [sequence for sequence in sequences if not sequence.is_backfill]
        num_yielding = sum(len(sequence.pages) for sequence in self._scheduler.running if sequence.is_backfill)
        num_places = self._scheduler.max_sequences
        # Batch jobs that could not advance would only be kept from other workers.
        num_advancing = self._backfill.rows_beside(len(urgent)) - (len(sequences) - len(urgent))
        return {
            JobClass.INTERACTIVE: Room(
                self._free_tokens(urgent, self._pages.num_available + num_yielding), max(0, num_places - len(urgent))
            ),
            JobClass.BATCH: Room(
                self._free_tokens(sequences, self._pages.num_available),
                max(0, min(num_places - len(sequences), num_advancing)),
            ),
        }

    def surplus(self, jobs: Mapping[str, HeldJob]) -> list[str]:
        """Batch jobs, the youngest first, that had to make way and could as well run elsewhere."""
        sequences = [sequence for held in jobs.values() for sequence in held.unfinished]
        num_places = len(sequences) - self._scheduler.max_sequences
        num_pages = sum(map(self._promised_pages, sequences)) - self._pages.num_pages
        surplus: list[str] = []
        for job_id, held in reversed(list(jobs.items())):
            if num_places <= 0 and num_pages <= 0:
                break
            if _is_idle_backfill(held):
                surplus.append(job_id)
                num_places -= len(held.unfinished)
                num_pages -= sum(map(self._promised_pages, held.unfinished))
        return surplus

    def _free_tokens(self, sequences: Collection[Sequence], num_available: int) -> int:
        num_pages = self._pages.num_pages - sum(map(self._promised_pages, sequences))
        return max(0, min(num_pages, num_available)) * self._pages.page_size

    def _promised_pages(self, sequence: Sequence) -> int:
        """Pages to keep for a sequence, without the prompt's full ones where another choice of the job has those."""
        num_shared = 0 if sequence.is_first_of_prompt else (sequence.num_prompt_tokens - 1) // self._pages.page_size
        return max(self._pages.pages_for(sequence.promised_tokens), len(sequence.pages)) - num_shared


def _is_idle_backfill(held: HeldJob) -> bool:
    return bool(held.unfinished) and all(each.is_backfill and not each.pages for each in held.unfinished)
