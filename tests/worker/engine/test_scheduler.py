"""The scheduler: budget, order, admission, preemption."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.doubles import make_job
from worker.engine.page_allocator import PageAllocator
from worker.engine.scheduler import Scheduler
from worker.engine.sequence import Sequence, Span
from worker.protocol.job import JobClass

MAX_CONTEXT = 40


class Bench:
    """A scheduler with a clock of steps: every span that reaches its end yields a token."""

    def __init__(self, num_pages: int = 16, page_size: int = 4, max_sequences: int = 4, step_tokens: int = 16) -> None:
        self.allocator = PageAllocator(num_pages, page_size)
        self.scheduler = Scheduler(self.allocator, max_sequences, step_tokens)
        self.step_tokens = step_tokens
        self.max_sequences = min(max_sequences, step_tokens)
        self.num_arrivals = 0

    def add(self, length: int, max_tokens: int = 4, job_class: JobClass = JobClass.INTERACTIVE) -> Sequence:
        self.num_arrivals += 1
        job = make_job([1] * length, max_tokens=max_tokens, job_class=job_class)
        sequence = Sequence(job, 0, self.num_arrivals, MAX_CONTEXT)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> list[Span]:
        spans = self.scheduler.schedule()
        self._check(spans)
        for span in spans:
            sequence = span.sequence
            reaches_end = span.needs_logits
            sequence.num_computed = span.stop
            if reaches_end:
                sequence.append([7])
                if sequence.is_at_limit:
                    self.scheduler.remove(sequence)
        self.allocator.check_conservation(sequence.pages for sequence in self.scheduler.running)
        return spans

    def _check(self, spans: list[Span]) -> None:
        assert sum(span.num_tokens for span in spans) <= self.step_tokens
        assert len(self.scheduler.running) <= self.max_sequences
        assert len({span.sequence.rank for span in spans}) == len(spans)
        for span in spans:
            assert span.start == span.sequence.num_computed
            assert span.num_tokens > 0
            assert len(span.sequence.pages) * self.allocator.page_size >= span.stop
        assert bool(spans) == bool(self.scheduler.running or self.scheduler.waiting)


def spans_of(spans: list[Span]) -> list[tuple[int, int, int]]:
    """(arrival, start, stop) of each span."""
    return [(span.sequence.rank[1], span.start, span.stop) for span in spans]


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
    assert [sequence.rank[1] for sequence in bench.scheduler.waiting] == [2, 3]


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
    assert (young.rank[1], 0, length) in spans_of(spans)


def test_the_lowest_class_gives_way_before_the_youngest() -> None:
    bench = Bench(num_pages=6, page_size=4, max_sequences=3)
    batch = bench.add(4, max_tokens=12, job_class=JobClass.BATCH)
    bench.add(4, max_tokens=12)
    bench.step()
    bench.add(12, max_tokens=4)
    bench.step()
    assert bench.scheduler.waiting == [batch]
    assert [sequence.rank[1] for sequence in bench.scheduler.running] == [2, 3]


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
    assert bench.allocator.num_free == 16


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
    assert bench.allocator.num_free == num_pages
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
