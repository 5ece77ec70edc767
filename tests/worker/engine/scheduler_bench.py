"""A bench for the scheduler: it steps without a model and watches every page."""

from collections import Counter
from typing import Any

from tests.worker.engine.doubles import make_job
from worker.engine.backfill import Backfill
from worker.engine.page_keeper import PageKeeper
from worker.engine.policy import make_policy
from worker.engine.scheduler import Scheduler
from worker.engine.sequence import Sequence, Span
from worker.protocol.job import Job, JobClass

MAX_CONTEXT = 40


class Unbounded(Backfill):
    """Grants everything."""

    def grant(self, num_urgent_rows: int) -> int:
        del num_urgent_rows
        return 10**9


class Bench:
    """A scheduler with a clock of steps: every span that reaches its end yields a token.

    It notes which tokens each slot of each page was computed from, so that a page in wrong hands is found out.
    """

    def __init__(
        self,
        num_pages: int = 16,
        page_size: int = 4,
        max_sequences: int = 4,
        step_tokens: int = 16,
        policy: str = "continuous",
        backfill: Backfill | None = None,
    ) -> None:
        """Without a `backfill`, batch sequences may take all that the others leave."""
        self.pages = PageKeeper(num_pages, page_size)
        self.scheduler = Scheduler(
            self.pages, max_sequences, step_tokens, make_policy(policy, max_sequences), backfill or Unbounded(0.0)
        )
        self.step_tokens = step_tokens
        self.max_sequences = min(max_sequences, step_tokens)
        self.num_arrivals = 0
        self.written: dict[tuple[int, int], tuple[str, tuple[int, ...]]] = {}  # (page, place in it): tenant, tokens

    def add(self, length: int, max_tokens: int = 4, job_class: JobClass = JobClass.INTERACTIVE) -> Sequence:
        """A sequence whose prompt begins like no other's."""
        prompt = [1000 * (self.num_arrivals + 1)] * length
        return self.add_job(make_job(prompt, max_tokens=max_tokens, job_class=job_class))

    def add_job(self, job: Job) -> Sequence:
        self.num_arrivals += 1
        sequence = Sequence(job, 0, self.num_arrivals, MAX_CONTEXT)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> list[Span]:
        spans = self.scheduler.schedule()
        self._check(spans)
        for span in spans:
            self._write(span)
        for span in spans:
            self._read(span)
        for span in spans:
            reaches_end = span.needs_logits
            self.pages.accept(span)
            if reaches_end:
                self.pages.prove(span.sequence)
                span.sequence.append([7])
                if span.sequence.is_at_limit:
                    self.scheduler.remove(span.sequence)
        self.pages.check_conservation(self.scheduler.running)
        return spans

    def _write(self, span: Span) -> None:
        sequence = span.sequence
        holders = Counter(page for other in self.scheduler.running for page in other.pages)
        for place in range(span.start, span.stop):
            page, slot = sequence.pages[place // self.pages.page_size], place % self.pages.page_size
            assert holders[page] == 1, "a shared page is written"
            self.written[page, slot] = (sequence.tenant, tuple(sequence.token_ids[: place + 1]))

    def _read(self, span: Span) -> None:
        sequence = span.sequence
        for place in range(span.stop):
            found = self.written[sequence.pages[place // self.pages.page_size], place % self.pages.page_size]
            assert found == (sequence.tenant, tuple(sequence.token_ids[: place + 1])), "a page is in wrong hands"

    def _check(self, spans: list[Span]) -> None:
        assert sum(span.num_tokens for span in spans) <= self.step_tokens
        assert len(self.scheduler.running) <= self.max_sequences
        assert len({span.sequence.rank for span in spans}) == len(spans)
        for span in spans:
            assert span.start == span.sequence.num_computed
            assert span.num_tokens > 0
            assert len(span.sequence.pages) * self.pages.page_size >= span.stop
        assert bool(spans) == bool(self.scheduler.running or self.scheduler.waiting)

    @property
    def num_available(self) -> int:
        return self.pages.num_available


def spans_of(spans: list[Span]) -> list[tuple[int, int, int]]:
    """(arrival, start, stop) of each span."""
    return [(span.sequence.rank[2], span.start, span.stop) for span in spans]


def job_like(prompt: list[int], max_tokens: int = 4, **job_fields: Any) -> Job:
    return make_job(prompt, max_tokens=max_tokens, job_fields=job_fields)
