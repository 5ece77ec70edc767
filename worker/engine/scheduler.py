"""The scheduler: which tokens of which sequences the next step computes. Pure Python.

A step has a token budget. Running decodes go first, chunked prefill fills the rest as far as that saves time, and
waiting sequences are admitted while pages, places and budget last. When a running sequence needs a page and none is
free, the last in rank gives its pages back and is computed again later.

Batch sequences come after all interactive ones and get as many tokens as the backfill grants. Those that get none keep
their pages until somebody of better rank needs them.

Nobody starves: sequences are served by rank and the first in rank is never preempted for another, so it always
advances; and a sequence that does not fit yet is not overtaken by a smaller one behind it. One that would compute
pages which a running sequence of better rank is about to fill waits for those, and lets others pass meanwhile.
"""

from bisect import insort
from operator import attrgetter

from worker.engine.backfill import Backfill
from worker.engine.page_keeper import PageKeeper
from worker.engine.policy import Policy
from worker.engine.sequence import PROMPT_LOGITS_A_STEP, Sequence, Span, num_rows

Rank = tuple[int, int, int, int]
_by_rank = attrgetter("rank")


class Scheduler:
    def __init__(
        self, pages: PageKeeper, max_sequences: int, step_tokens: int, policy: Policy, backfill: Backfill
    ) -> None:
        """`max_sequences` is cut to `step_tokens`, so that all can decode in one step."""
        self.running: list[Sequence] = []  # both lists are sorted by rank
        self.waiting: list[Sequence] = []
        self.num_preemptions = 0
        self._num_prompt_logits = 0  # of all prompts together, that are left for the step being scheduled
        self.max_sequences = min(max_sequences, step_tokens)
        self._pages = pages
        self._policy = policy
        self._backfill = backfill
        self._step_tokens = step_tokens

    def add(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=_by_rank)

    def remove(self, sequence: Sequence) -> None:
        """Forgets the sequence and frees its pages, whatever it was doing. Harmless when it is gone already."""
        for sequences in (self.running, self.waiting):
            if sequence in sequences:
                sequences.remove(sequence)
        self._pages.give_back(sequence)

    def schedule(self) -> list[Span]:
        """The spans of the next step, at most one a sequence. Empty only when no sequence is held."""
        self._grow_running()
        newcomers = self._policy.eligible(self.waiting, self.running) if self.waiting else []
        coming = self._pages_to_come() if newcomers else {}
        urgent = [newcomer for newcomer in newcomers if not newcomer.is_backfill]
        is_room_left = self._admit(urgent, coming, self._step_tokens)
        self._num_prompt_logits = PROMPT_LOGITS_A_STEP
        spans = self._fill(self._step_tokens, is_backfill=False)
        spans += self._schedule_backfill(num_rows(spans), newcomers[len(urgent) :] if is_room_left else [], coming)
        for span in spans:
            self._pages.suspect(span)
        return spans

    def _schedule_backfill(
        self, num_urgent_rows: int, newcomers: list[Sequence], coming: dict[bytes, Rank]
    ) -> list[Span]:
        """The spans of batch sequences beside so many rows of interactive ones."""
        budget = min(self._backfill.grant(num_urgent_rows), self._step_tokens - num_urgent_rows)
        self._admit(newcomers, coming, budget)
        spans = self._fill(budget, is_backfill=True)
        self._backfill.spend(num_urgent_rows, num_rows(spans))
        return spans

    def _grow_running(self) -> None:
        """Gives every running sequence the pages its tokens need, preempting from the end of the rank."""
        for sequence in list(self.running):
            while sequence.pages and self._pages.num_missing(sequence) > self._pages.num_available:
                self._preempt(self.running[-1])
            if sequence.pages:
                self._pages.grow(sequence)

    def _admit(self, newcomers: list[Sequence], coming: dict[bytes, Rank], budget: int) -> bool:
        """Moves waiting sequences of one class to the running ones, in order, up to the first that has no room.

        False when there was one. `budget`: the tokens that this step has for the class.
        """
        for newcomer in newcomers:
            if coming and self._awaits(newcomer, coming):
                continue
            if not self._has_budget(newcomer, budget) or not self._make_room(newcomer):
                return False
            self.waiting.remove(newcomer)
            self._pages.admit(newcomer)
            insort(self.running, newcomer, key=_by_rank)
            self._promise(newcomer, coming)
        return True

    def _pages_to_come(self) -> dict[bytes, Rank]:
        """Keys of the pages that running prefills will fill, with the best rank that promises each."""
        coming: dict[bytes, Rank] = {}
        for sequence in self.running:
            self._promise(sequence, coming)
        return coming

    def _promise(self, sequence: Sequence, coming: dict[bytes, Rank]) -> None:
        if sequence.num_pending > 1:
            for key in self._pages.keys_to_come(sequence):
                coming[key] = min(sequence.rank, coming.get(key, sequence.rank))

    def _awaits(self, newcomer: Sequence, coming: dict[bytes, Rank]) -> bool:
        """Whether a page the newcomer lacks is on its way, from a better rank: so nobody waits in a circle."""
        key = self._pages.first_missing_key(newcomer)
        return key is not None and coming.get(key, newcomer.rank) < newcomer.rank

    def _has_budget(self, newcomer: Sequence, budget: int) -> bool:
        """Whether the step can compute a token of the newcomer after its class's decodes and the prefills before it."""
        neighbours = (other for other in self.running if other.is_backfill == newcomer.is_backfill)
        spoken_for = sum(other.num_pending if other.rank < newcomer.rank else 1 for other in neighbours)
        return spoken_for < budget

    def _make_room(self, newcomer: Sequence) -> bool:
        """Whether the newcomer fits, after preempting sequences of lower classes where that is enough."""
        if self._fits(newcomer):
            return True
        keepers = [other for other in self.running if other.job_class <= newcomer.job_class]
        if len(keepers) == len(self.running) or not self._fits_beside(newcomer, keepers):
            return False
        while not self._fits(newcomer):
            self._preempt(self.running[-1])
        return True

    def _fits(self, newcomer: Sequence) -> bool:
        """Whether place and pages suffice beside all that run."""
        if len(self.running) >= self.max_sequences:
            return False
        num_shared = sum(not self._pages.is_available(page) for page in self._pages.hits(newcomer))
        return self._needed(newcomer, self.running) - num_shared <= self._pages.num_available

    def _fits_beside(self, newcomer: Sequence, keepers: list[Sequence]) -> bool:
        """Whether place and pages would suffice if only `keepers` ran."""
        kept = {page for other in keepers for page in other.pages}
        num_shared = sum(page in kept for page in self._pages.hits(newcomer))
        num_available = self._pages.num_pages - len(kept)
        return len(keepers) < self.max_sequences and self._needed(newcomer, keepers) - num_shared <= num_available

    def _needed(self, newcomer: Sequence, neighbours: list[Sequence]) -> int:
        """Pages for the newcomer, and one for each neighbour that may still grow and would not make way for it.

        Without that margin a newcomer's prefill would often be thrown away by the next page a neighbour needs.
        """
        growing = sum(
            other.job_class <= newcomer.job_class and self._pages.pages_for(other.limit) > len(other.pages)
            for other in neighbours
        )
        return self._pages.num_missing(newcomer) + growing

    def _fill(self, budget: int, *, is_backfill: bool) -> list[Span]:
        """Spans of running sequences, batch ones or the others: decodes, then prefills, each in order of rank."""
        spans: list[Span] = []
        chosen = [sequence for sequence in self.running if sequence.is_backfill == is_backfill]
        for sequence in sorted(chosen, key=lambda each: each.num_pending > 1):  # stable: by rank among themselves
            if not is_backfill and self._is_enough(spans, sequence):
                break
            num_tokens = min(sequence.num_pending, budget)
            if sequence.wants_prompt_logits:
                num_tokens = min(num_tokens, self._num_prompt_logits)
                self._num_prompt_logits -= num_tokens
            if num_tokens > 0:
                spans.append(Span(sequence, sequence.num_computed, sequence.num_computed + num_tokens))
                budget -= num_tokens
        return spans

    def _is_enough(self, spans: list[Span], prompt: Sequence) -> bool:
        """Whether a prompt had better wait, for its rows would only delay the first tokens of those before it.

        Decodes do not count: each step that a prompt waits for would compute them once more.
        """
        num_prompt_rows = num_rows([span for span in spans if span.num_tokens > 1])
        return prompt.num_pending > 1 and 0 < num_prompt_rows >= self._backfill.times.enough_rows

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._pages.give_back(sequence)
        self.add(sequence)
        self.num_preemptions += 1
