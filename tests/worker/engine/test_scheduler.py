"""The scheduler: budget, order, admission, preemption."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.doubles import make_job
from tests.worker.engine.scheduler_bench import MAX_CONTEXT, Bench, job_like, spans_of
from worker.engine import scheduler
from worker.engine.backfill import Backfill
from worker.engine.sequence import Sequence
from worker.protocol.job import JobClass


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


def test_where_more_rows_save_no_time_a_prompt_waits_until_those_before_it_are_done() -> None:
    backfill = Backfill(0.1)
    for num_rows in (1, 5, 100):
        backfill.times.observe(num_rows, 0.0015 + 0.01 * num_rows)  # after five rows, what any step costs is a trifle
    bench = Bench(num_pages=64, step_tokens=16, max_sequences=8, backfill=backfill)
    for length in (3, 4, 9, 20, 2):
        bench.add(length, max_tokens=9)
    assert spans_of(bench.step()) == [(1, 0, 3), (2, 0, 4)]
    assert spans_of(bench.step()) == [(1, 3, 4), (2, 4, 5), (3, 0, 9)]
    assert spans_of(bench.step()) == [(1, 4, 5), (2, 5, 6), (3, 9, 10), (4, 0, 13)]
    assert spans_of(bench.step())[3:] == [(4, 13, 20)]
    bench.add(2)
    assert spans_of(bench.step())[4:] == [(5, 0, 2), (6, 0, 2)], "the decodes before them do not count"


def test_where_a_step_costs_nothing_but_its_rows_each_prompt_has_a_step_of_its_own() -> None:
    backfill = Backfill(0.1)
    for num_rows in (1, 100):
        backfill.times.observe(num_rows, 0.01 * num_rows)
    bench = Bench(step_tokens=16, backfill=backfill)
    bench.add(3)
    bench.add(5)
    assert [spans_of(bench.step()) for _ in range(2)] == [[(1, 0, 3)], [(1, 3, 4), (2, 0, 5)]]


def test_prompts_to_be_told_of_share_the_rows_of_logits_that_a_step_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "PROMPT_LOGITS_A_STEP", 6)
    bench = Bench(step_tokens=16, max_sequences=4)
    for length in (4, 5):
        bench.add_job(make_job([1000 * length] * length, max_tokens=2, prompt_logprobs=0))
    bench.add(5)
    assert spans_of(bench.step()) == [(1, 0, 4), (2, 0, 2), (3, 0, 5)]
    assert spans_of(bench.step()) == [(1, 4, 5), (3, 5, 6), (2, 2, 5)]


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
