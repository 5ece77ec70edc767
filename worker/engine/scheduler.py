"""The scheduler: which tokens of which sequences the next step computes. Pure Python.

A step has a token budget. Running decodes go first, chunked prefill fills the rest, and waiting sequences are admitted
while pages, places and budget last. When a running sequence needs a page and none is free, the youngest of the lowest
class gives its pages back and is computed again later.

Nobody starves: sequences are served by rank and the first in rank is never preempted for another, so it always
advances; and a sequence that does not fit yet is not overtaken by a smaller one behind it.
"""

from bisect import insort
from operator import attrgetter

from worker.engine.page_allocator import PageAllocator
from worker.engine.sequence import Sequence, Span

_by_rank = attrgetter("rank")


class Scheduler:
    def __init__(self, allocator: PageAllocator, max_sequences: int, step_tokens: int) -> None:
        """`max_sequences` is cut to `step_tokens`, so that every running sequence can decode in every step."""
        self.running: list[Sequence] = []  # both lists are sorted by rank
        self.waiting: list[Sequence] = []
        self.num_preemptions = 0
        self.tainted_pages: set[int] = set()  # freed with contents nobody vouches for
        self._allocator = allocator
        self._max_sequences = min(max_sequences, step_tokens)
        self._step_tokens = step_tokens

    def add(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=_by_rank)

    def remove(self, sequence: Sequence) -> None:
        """Forgets the sequence and frees its pages, whatever it was doing. Harmless when it is gone already."""
        for sequences in (self.running, self.waiting):
            if sequence in sequences:
                sequences.remove(sequence)
        self._free_pages(sequence)

    def schedule(self) -> list[Span]:
        """The spans of the next step, at most one a sequence. Empty only when no sequence is held."""
        self._grow_running()
        while self._admit_next():
            pass
        return self._fill_budget()

    def _grow_running(self) -> None:
        """Gives every running sequence the pages its tokens need, preempting from the end of the rank."""
        for sequence in list(self.running):
            while sequence.pages and self._missing_pages(sequence) > self._allocator.num_free:
                self._preempt(self.running[-1])
            if sequence.pages:
                sequence.pages += self._allocator.allocate(self._missing_pages(sequence))

    def _admit_next(self) -> bool:
        """Moves the first waiting sequence to the running ones. False when there is none or no room for it."""
        if not self.waiting or not self._has_budget(self.waiting[0]) or not self._make_room(self.waiting[0]):
            return False
        sequence = self.waiting.pop(0)
        sequence.pages = self._allocator.allocate(self._missing_pages(sequence))
        insort(self.running, sequence, key=_by_rank)
        return True

    def _has_budget(self, newcomer: Sequence) -> bool:
        """Whether this step can compute a token of the newcomer after all decodes and the prefills before it."""
        spoken_for = sum(other.num_pending if other.rank < newcomer.rank else 1 for other in self.running)
        return spoken_for < self._step_tokens

    def _make_room(self, newcomer: Sequence) -> bool:
        """Whether the newcomer fits, after preempting sequences of lower classes where that is enough."""
        lower = [sequence for sequence in self.running if sequence.job_class > newcomer.job_class]
        keepers = self.running[: len(self.running) - len(lower)]
        reclaimable = sum(len(sequence.pages) for sequence in lower)
        if not self._fits(newcomer, keepers, self._allocator.num_free + reclaimable):
            return False
        while not self._fits(newcomer, self.running, self._allocator.num_free):
            self._preempt(self.running[-1])
        return True

    def _fits(self, newcomer: Sequence, neighbours: list[Sequence], num_free: int) -> bool:
        """Whether place and pages suffice, with a page left for each neighbour that may still grow.

        Without that margin a newcomer's prefill would often be thrown away by the next page a neighbour needs.
        """
        growing = sum(self._allocator.pages_for(other.limit) > len(other.pages) for other in neighbours)
        return len(neighbours) < self._max_sequences and self._missing_pages(newcomer) + growing <= num_free

    def _fill_budget(self) -> list[Span]:
        budget = self._step_tokens
        spans = []
        for sequence in sorted(self.running, key=lambda each: each.num_pending > 1):  # stable: decodes first, by rank
            num_tokens = min(sequence.num_pending, budget)
            if num_tokens > 0:
                spans.append(Span(sequence, sequence.num_computed, sequence.num_computed + num_tokens))
                budget -= num_tokens
        return spans

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._free_pages(sequence)
        self.add(sequence)
        self.num_preemptions += 1

    def _free_pages(self, sequence: Sequence) -> None:
        freed = self._allocator.release(sequence.pages)
        if not sequence.is_sound:
            self.tainted_pages.update(freed)
        sequence.pages = []
        sequence.num_computed = 0

    def _missing_pages(self, sequence: Sequence) -> int:
        return self._allocator.pages_for(len(sequence.token_ids)) - len(sequence.pages)
