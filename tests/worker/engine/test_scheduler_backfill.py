"""Batch sequences among interactive ones: what they get, what they keep, and when they make way."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.scheduler_bench import MAX_CONTEXT, Bench, job_like, spans_of
from worker.engine.backfill import Backfill
from worker.engine.sequence import Sequence
from worker.protocol.job import JobClass


class Grants(Backfill):
    """Grants what a test says: beside interactive work, and alone."""

    def __init__(self, beside: int, alone: int = 10**9) -> None:
        super().__init__(0.0)
        self.beside = beside
        self.alone = alone

    def grant(self, num_urgent_rows: int) -> int:
        return self.beside if num_urgent_rows else self.alone


def test_batch_decodes_and_prefills_share_what_is_granted_behind_all_interactive_rows() -> None:
    bench = Bench(num_pages=64, step_tokens=64, max_sequences=8, backfill=Grants(beside=3))
    for length in (2, 3, 9):
        bench.add(length, job_class=JobClass.BATCH)
    bench.step()
    bench.add(5)
    bench.add(8, job_class=JobClass.BATCH)
    assert spans_of(bench.step()) == [(4, 0, 5), (1, 2, 3), (2, 3, 4), (3, 9, 10)]


def test_a_batch_prompt_is_computed_in_chunks_of_what_is_granted() -> None:
    bench = Bench(num_pages=64, step_tokens=64, backfill=Grants(beside=2, alone=6))
    bench.add(11, job_class=JobClass.BATCH)
    assert spans_of(bench.step()) == [(1, 0, 6)]
    bench.add(3, max_tokens=9)
    assert spans_of(bench.step()) == [(2, 0, 3), (1, 6, 8)]
    assert spans_of(bench.step()) == [(2, 3, 4), (1, 8, 10)]


def test_batch_sequences_that_get_nothing_keep_their_pages_and_go_on_afterwards() -> None:
    bench = Bench(num_pages=64, step_tokens=64, backfill=Grants(beside=0))
    batch = bench.add(9, max_tokens=8, job_class=JobClass.BATCH)
    bench.step()
    bench.add(4, max_tokens=3)
    pages = batch.pages
    assert [spans_of(bench.step()) for _ in range(3)] == [[(2, 0, 4)], [(2, 4, 5)], [(2, 5, 6)]]
    assert batch.pages == pages
    assert spans_of(bench.step()) == [(1, 9, 10)]
    assert bench.scheduler.num_preemptions == 0


def test_a_batch_sequence_for_which_nothing_is_granted_is_not_even_admitted() -> None:
    bench = Bench(num_pages=64, step_tokens=64, backfill=Grants(beside=1))
    bench.add(2, max_tokens=30)
    first, second = (bench.add(2, max_tokens=2, job_class=JobClass.BATCH) for _ in range(2))
    bench.step()
    assert (bool(first.pages), second.pages) == (True, [])


def test_when_interactive_work_needs_pages_then_the_youngest_batch_sequence_gives_them() -> None:
    bench = Bench(num_pages=8, page_size=4, step_tokens=64, max_sequences=8, backfill=Grants(beside=0))
    batch = [bench.add(5, max_tokens=8, job_class=JobClass.BATCH) for _ in range(3)]
    bench.step()
    bench.add(12, max_tokens=8)
    bench.step()
    assert bench.scheduler.waiting == [batch[2]]
    assert spans_of(bench.step()) == [(4, 12, 13)]


def test_when_all_places_are_taken_by_batch_sequences_an_interactive_one_is_computed_in_the_very_next_step() -> None:
    bench = Bench(num_pages=64, step_tokens=64, max_sequences=8, backfill=Grants(beside=2))
    for _ in range(8):
        bench.add(4, max_tokens=30, job_class=JobClass.BATCH)
    bench.step()
    bench.add(6)
    assert spans_of(bench.step()) == [(9, 0, 6), (1, 4, 5), (2, 4, 5)]
    assert len(bench.scheduler.running) == 8


def test_batch_lines_that_begin_alike_compute_their_beginning_once_although_in_small_chunks() -> None:
    bench = Bench(num_pages=64, step_tokens=64, max_sequences=8, backfill=Grants(beside=0, alone=5))
    for end in range(4):
        bench.add_job(job_like([*range(100, 112), end], max_tokens=1, job_class=JobClass.BATCH))
    num_rows = [sum(span.num_tokens for span in bench.step()) for _ in range(4)]
    assert num_rows == [5, 5, 3, 3]


arrivals = st.tuples(st.integers(1, 30), st.integers(1, 20), st.sampled_from(list(JobClass)))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(arrivals, st.none(), st.tuples(st.integers(1, 40), st.floats(1e-5, 0.1))), max_size=40),
    st.integers(1, 5),
    st.integers(1, 24),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_however_long_steps_seem_to_take_everyone_ends_and_interactive_work_never_waits_for_batch_work(
    script: list[tuple[int, int, JobClass] | tuple[int, float] | None],
    max_sequences: int,
    step_tokens: int,
    slowdown: float,
) -> None:
    backfill = Backfill(slowdown)
    bench = Bench(-(-MAX_CONTEXT // 4), 4, max_sequences, step_tokens, backfill=backfill)
    alone = Backfill(slowdown)
    twin = Bench(-(-MAX_CONTEXT // 4), 4, max_sequences, step_tokens, backfill=alone)  # has the interactive ones alone
    sequences: list[Sequence] = []
    for action in script:  # an arrival, a time that a step took, or a step
        if action is None:
            urgent = [span for span in bench.step() if not span.sequence.is_backfill]
            assert [span.num_tokens for span in urgent] == [span.num_tokens for span in twin.step()]
        elif len(action) == 2:
            backfill.times.observe(*action)
            alone.times.observe(*action)
        else:
            sequences.append(bench.add(*action))
            if action[2] == JobClass.INTERACTIVE:
                twin.add(*action[:2])
    for _ in range(20_000):
        if not bench.step():
            break
    assert all(sequence.is_at_limit for sequence in sequences)
