"""The scheduler: budget, order, admission, preemption."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.doubles import make_job
from worker.engine.page_keeper import PageKeeper
from worker.engine.policy import POLICIES, make_policy
from worker.engine.scheduler import Scheduler
from worker.engine.sequence import Sequence, Span
from worker.protocol.job import Job, JobClass

MAX_CONTEXT = 40


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
    ) -> None:
        self.pages = PageKeeper(num_pages, page_size)
        self.scheduler = Scheduler(self.pages, max_sequences, step_tokens, make_policy(policy, max_sequences))
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


def test_a_long_prompt_is_cut_into_chunks_that_fill_the_budget_behind_the_decodes() -> None:
    bench = Bench(step_tokens=8)
    bench.add(3, max_tokens=9)
    assert spans_of(bench.step()) == [(1, 0, 3)]
    bench.add(17)
    assert spans_of(bench.step()) == [(1, 3, 4), (2, 0, 7)]
    assert spans_of(bench.step()) == [(1, 4, 5), (2, 7, 14)]
    assert spans_of(bench.step()) == [(1, 5, 6), (2, 14, 17)]
    assert spans_of(bench.step()) == [(1, 6, 7), (2, 17, 18)]


def test_several_prompts_share_one_step() -> None:
    bench = Bench(step_tokens=16)
    for length in (5, 6, 9):
        bench.add(length)
    assert spans_of(bench.step()) == [(1, 0, 5), (2, 0, 6), (3, 0, 5)]


def test_when_all_places_are_taken_then_the_next_waits_for_the_first_to_end() -> None:
    bench = Bench(max_sequences=2)
    bench.add(2, max_tokens=2)
    bench.add(2, max_tokens=3)
    bench.add(2)
    assert spans_of(bench.step()) == [(1, 0, 2), (2, 0, 2)]
    assert spans_of(bench.step()) == [(1, 2, 3), (2, 2, 3)]
    assert spans_of(bench.step()) == [(2, 3, 4), (3, 0, 2)]


def test_a_small_sequence_does_not_overtake_a_large_one_that_does_not_fit_yet() -> None:
    bench = Bench(num_pages=4, page_size=4)
    bench.add(8, max_tokens=3)
    bench.add(12)
    bench.add(1)
    bench.step()
    assert [sequence.rank[2] for sequence in bench.scheduler.waiting] == [2, 3]


def test_when_no_page_is_free_then_the_youngest_gives_way_and_is_computed_again_in_full() -> None:
    bench = Bench(num_pages=4, page_size=4)
    old = bench.add(7, max_tokens=9)
    young = bench.add(4, max_tokens=2)
    bench.step()
    young.limit = 16  # it may now grow beyond what was foreseen
    bench.step()
    while bench.scheduler.num_preemptions == 0:
        bench.step()
    assert bench.scheduler.waiting == [young]
    assert (young.pages, young.num_computed) == ([], 0)
    assert old in bench.scheduler.running
    length = len(young.token_ids)
    while not young.pages:
        spans = bench.step()
    assert (young.rank[2], 0, length) in spans_of(spans)


def test_the_lowest_class_gives_way_before_the_youngest() -> None:
    bench = Bench(num_pages=6, page_size=4, max_sequences=3)
    batch = bench.add(4, max_tokens=12, job_class=JobClass.BATCH)
    bench.add(4, max_tokens=12)
    bench.step()
    bench.add(12, max_tokens=4)
    bench.step()
    assert bench.scheduler.waiting == [batch]
    assert [sequence.rank[2] for sequence in bench.scheduler.running] == [2, 3]


def test_an_interactive_sequence_takes_the_place_of_a_batch_sequence() -> None:
    bench = Bench(max_sequences=1)
    batch = bench.add(4, job_class=JobClass.BATCH)
    bench.step()
    interactive = bench.add(4)
    bench.step()
    assert bench.scheduler.running == [interactive]
    assert bench.scheduler.waiting == [batch]


def test_an_interactive_prompt_does_not_wait_for_the_prefill_of_a_batch_prompt() -> None:
    bench = Bench(num_pages=32, step_tokens=8)
    bench.add(36, job_class=JobClass.BATCH)
    assert spans_of(bench.step()) == [(1, 0, 8)]
    bench.add(6)
    assert spans_of(bench.step()) == [(2, 0, 6), (1, 8, 10)]


def test_an_equal_class_is_never_preempted_to_admit_another() -> None:
    bench = Bench(max_sequences=1)
    first = bench.add(4)
    bench.step()
    bench.add(4)
    bench.step()
    assert bench.scheduler.running == [first]
    assert bench.scheduler.num_preemptions == 0


def test_removing_frees_the_pages_at_once_in_every_state_and_twice_does_no_harm() -> None:
    bench = Bench(max_sequences=1)
    running, waiting = bench.add(4), bench.add(4)
    bench.step()
    for sequence in (running, waiting, running):
        bench.scheduler.remove(sequence)
    assert bench.scheduler.schedule() == []
    assert bench.num_available == 16


arrivals = st.tuples(st.integers(1, 30), st.integers(1, 20), st.sampled_from(list(JobClass)))
actions = st.lists(st.one_of(arrivals, st.integers(0, 20), st.none()), max_size=40)


@settings(max_examples=150, deadline=None)
@given(actions, st.integers(1, 5), st.integers(1, 5), st.integers(1, 24))
def test_whatever_comes_and_goes_everyone_ends_and_no_page_is_lost(
    script: list[tuple[int, int, JobClass] | int | None], page_size: int, max_sequences: int, step_tokens: int
) -> None:
    num_pages = -(-MAX_CONTEXT // page_size)  # the smallest pool an engine allows: one longest sequence
    bench = Bench(num_pages, page_size, max_sequences, step_tokens)
    sequences: list[Sequence] = []
    removed: set[int] = set()
    for action in script:  # an arrival, a removal, or a step
        if isinstance(action, tuple):
            sequences.append(bench.add(*action))
        elif isinstance(action, int) and sequences:
            bench.scheduler.remove(sequences[action % len(sequences)])
            removed.add(action % len(sequences))
        else:
            bench.step()
    for _ in range(20_000):
        if not bench.step():
            break
    assert bench.num_available == num_pages
    for index, sequence in enumerate(sequences):
        assert index in removed or sequence.is_at_limit


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 15)), min_size=2, max_size=8))
def test_the_first_in_rank_advances_in_every_step_however_crowded_the_pool(sizes: list[tuple[int, int]]) -> None:
    bench = Bench(num_pages=10, page_size=4, max_sequences=8, step_tokens=8)
    for length, max_tokens in sizes:
        bench.add(length, max_tokens)
    while bench.scheduler.running or bench.scheduler.waiting:
        everyone = [*bench.scheduler.running, *bench.scheduler.waiting]
        first = min(everyone, key=lambda sequence: sequence.rank)
        before = first.num_computed
        bench.step()
        assert first.num_computed > before or first.is_at_limit


def job_like(prompt: list[int], max_tokens: int = 4, **job_fields: Any) -> Job:
    return make_job(prompt, max_tokens=max_tokens, job_fields=job_fields)


def test_of_one_class_the_earlier_deadline_goes_first_and_else_the_earlier_arrival() -> None:
    bench = Bench(max_sequences=1)
    usual = bench.add_job(job_like([1], created_s=100))
    late = bench.add_job(job_like([2], created_s=100, timeout_ms=900_000))
    hurried = bench.add_job(job_like([3], created_s=160, timeout_ms=5_000))
    same = bench.add_job(job_like([4], created_s=100))
    batch = bench.add_job(job_like([5], created_s=1, timeout_ms=1, job_class=JobClass.BATCH))
    assert bench.scheduler.waiting == [hurried, usual, same, late, batch]


def test_a_job_with_much_time_is_served_although_hurried_ones_never_stop_coming() -> None:
    bench = Bench(max_sequences=1)
    patient = bench.add_job(job_like([1] * 5, created_s=0, timeout_ms=60_000))
    for second in range(70):
        bench.add_job(job_like([2], max_tokens=1, created_s=second, timeout_ms=1_000))
        bench.step()
    assert patient.is_at_limit


def test_those_who_share_a_beginning_wait_for_the_first_to_compute_it_and_others_pass_them() -> None:
    bench = Bench(step_tokens=64, max_sequences=8)
    shared = list(range(8))
    for end in ([50], [51], [52, 53, 54]):
        bench.add_job(job_like([*shared, *end]))
    bench.add(5)
    assert spans_of(bench.step()) == [(1, 0, 9), (4, 0, 5)]
    assert spans_of(bench.step()) == [(1, 9, 10), (2, 8, 9), (4, 5, 6), (3, 8, 11)]


def test_a_beginning_that_fills_no_page_is_not_waited_for() -> None:
    bench = Bench(step_tokens=64)
    for end in (50, 51):
        bench.add_job(job_like([1, 2, 3, end, end]))
    assert spans_of(bench.step()) == [(1, 0, 5), (2, 0, 5)]


def test_nobody_waits_for_a_prefill_of_a_lower_class() -> None:
    bench = Bench(num_pages=32, step_tokens=8)
    bench.add_job(job_like([1] * 20, job_class=JobClass.BATCH))
    bench.step()
    bench.add_job(job_like([1] * 20))
    assert spans_of(bench.step()) == [(2, 8, 16)]


def test_who_waited_for_a_sequence_that_is_gone_computes_the_beginning_itself() -> None:
    bench = Bench(num_pages=32, step_tokens=8)
    first = bench.add_job(job_like([1] * 20))
    bench.add_job(job_like([1] * 20))
    bench.step()
    bench.scheduler.remove(first)
    assert spans_of(bench.step()) == [(2, 0, 8)]


def test_lower_classes_are_not_preempted_when_their_pages_would_still_be_held() -> None:
    """Both hold the same two pages: preempting the batch sequence would free only its third."""
    bench = Bench(num_pages=6, page_size=4, max_sequences=4, step_tokens=64)
    bench.add_job(job_like([1] * 9, max_tokens=3))
    bench.step()
    batch = bench.add_job(job_like([1] * 9, max_tokens=3, job_class=JobClass.BATCH))
    bench.step()
    bench.add_job(job_like([2] * 16, max_tokens=1))
    bench.step()
    assert batch in bench.scheduler.running
    assert bench.scheduler.num_preemptions == 0


def test_a_static_batch_runs_to_its_end_before_the_next_begins() -> None:
    bench = Bench(max_sequences=2, policy="static")
    for max_tokens in (1, 3, 2, 2):
        bench.add(2, max_tokens)
    steps = []
    while spans := bench.step():
        steps.append([span.sequence.rank[2] for span in spans])
    assert steps == [[1, 2], [2], [2], [3, 4], [3, 4]]


def test_who_comes_while_a_static_batch_runs_waits_for_the_next() -> None:
    bench = Bench(max_sequences=4, policy="static")
    bench.add(2, 3)
    bench.step()
    bench.add(2, 1, JobClass.INTERACTIVE)
    steps = [[span.sequence.rank[2] for span in bench.step()] for _ in range(3)]
    assert steps == [[1], [1], [2]]


def test_a_static_batch_that_does_not_fit_at_once_is_still_one_batch() -> None:
    bench = Bench(num_pages=10, page_size=4, max_sequences=3, policy="static", step_tokens=64)
    members = [bench.add(30, 3) for _ in range(3)]
    outsider = bench.add(1, 1)
    while not all(member.is_at_limit for member in members):
        assert outsider in bench.scheduler.waiting
        bench.step()
    bench.step()
    assert outsider.is_at_limit


@dataclass(frozen=True)
class Arrival:
    """A prompt cut out of few texts, so that many begin alike."""

    text: int
    length: int
    max_tokens: int
    tenant: str
    job_class: JobClass
    timeout_ms: int

    def job(self, second: int) -> Job:
        prompt = [*[self.text % 2] * min(self.length, 9), *[self.text] * max(0, self.length - 9)]
        fields = {"tenant": self.tenant, "job_class": self.job_class, "timeout_ms": self.timeout_ms}
        return make_job(prompt, max_tokens=self.max_tokens, job_fields={**fields, "created_s": second})


kin = st.builds(
    Arrival,
    text=st.integers(0, 3),
    length=st.integers(1, 30),
    max_tokens=st.integers(1, 12),
    tenant=st.sampled_from(["a", "b"]),
    job_class=st.sampled_from(list(JobClass)),
    timeout_ms=st.sampled_from([0, 3_000, 900_000]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(kin, st.integers(0, 20), st.none()), max_size=50),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 24),
    st.integers(0, 8),
    st.sampled_from(POLICIES),
)
def test_whatever_is_shared_no_page_is_in_wrong_hands_and_everyone_ends(
    script: list[Arrival | int | None], page_size: int, max_sequences: int, step_tokens: int, spare: int, policy: str
) -> None:
    num_pages = -(-MAX_CONTEXT // page_size) + spare
    bench = Bench(num_pages, page_size, max_sequences, step_tokens, policy)
    sequences: list[Sequence] = []
    removed: set[int] = set()
    for second, action in enumerate(script):  # an arrival, a removal, or a step; Bench checks every step
        if isinstance(action, Arrival):
            sequences.append(bench.add_job(action.job(second)))
        elif isinstance(action, int) and sequences:
            bench.scheduler.remove(sequences[action % len(sequences)])
            removed.add(action % len(sequences))
        else:
            bench.step()
    for _ in range(20_000):
        if not bench.step():
            break
    assert bench.num_available == num_pages
    for index, sequence in enumerate(sequences):
        assert index in removed or sequence.is_at_limit
