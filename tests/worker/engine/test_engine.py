"""The engine over a fake model: what each job gets, however crowded it is."""

import pytest

from tests.worker.engine.doubles import (
    END_TOKEN,
    VOCAB_SIZE,
    endless,
    expected_answer,
    letter,
    long_prompt,
    make_engine,
    make_job,
    one_hot,
    run,
    text_of,
)
from worker.engine.job_check import JobRejected
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import Job, JobClass


def test_a_job_yields_one_delta_a_token_and_then_succeeds() -> None:
    engine, _ = make_engine()
    job = endless([3, 4, 5], max_tokens=5)
    engine.add(job)
    collected = run(engine)
    answer = expected_answer(job)
    assert collected.token_ids(job) == answer
    assert len(collected.deltas[job.id]) == 5
    assert collected.text(job) == text_of(answer)
    assert collected.finish(job) == "length"
    assert collected.terminals[job.id] == Terminal("succeeded", "", "", 3, 5, 0)


def test_the_end_token_counts_but_is_not_shown() -> None:
    engine, model = make_engine()
    model.logits_after = lambda token_ids: one_hot(END_TOKEN if len(token_ids) == 4 else 9)
    job = make_job([1, 2])
    engine.add(job)
    collected = run(engine)
    assert collected.token_ids(job) == [9, 9, END_TOKEN]
    assert collected.text(job) == letter(9) * 2
    assert collected.finish(job) == "stop"
    assert collected.terminals[job.id].num_completion_tokens == 3


def test_a_stop_string_ends_the_answer_and_is_cut_off() -> None:
    engine, _ = make_engine()
    job = endless([3, 4, 5])
    text = text_of(expected_answer(job))
    stopped = make_job(*job.prompts, max_tokens=20, stop=(text[4:7],))
    engine.add(stopped)
    collected = run(engine)
    assert collected.text(stopped) == text[:4]
    assert collected.finish(stopped) == "stop"
    assert collected.terminals[stopped.id].num_completion_tokens == 7


def test_the_context_ends_an_answer_as_its_own_limit_does() -> None:
    engine, _ = make_engine(max_context=12)
    job = endless([3, 4, 5], max_tokens=20)
    engine.add(job)
    collected = run(engine)
    assert collected.token_ids(job) == expected_answer(job)[:9]
    assert collected.finish(job) == "length"


def test_each_prompt_of_a_job_is_a_choice_and_the_last_one_ends_the_job() -> None:
    engine, _ = make_engine()
    job = make_job([1, 2, 3], [4], [5, 6, 7, 8, 9, 10], max_tokens=6)
    engine.add(job)
    collected = run(engine)
    answers = [expected_answer(job, choice) for choice in range(3)]
    assert [collected.token_ids(job, choice) for choice in range(3)] == answers
    assert collected.terminals[job.id] == Terminal("succeeded", "", "", 10, sum(map(len, answers)), 0)


def test_a_job_whose_prompts_do_not_fit_together_runs_them_one_after_another() -> None:
    engine, _ = make_engine(num_pages=6, page_size=4, max_context=24)
    job = endless(long_prompt(14), long_prompt(15, 9), long_prompt(16, 20), max_tokens=6)
    engine.add(job)
    collected = run(engine)
    assert [collected.token_ids(job, choice) for choice in range(3)] == [
        expected_answer(job, choice, 24) for choice in range(3)
    ]


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
@pytest.mark.parametrize("step_tokens", [1, 7, 64])
def test_page_size_and_chunks_do_not_change_an_answer(page_size: int, step_tokens: int) -> None:
    engine, _ = make_engine(num_pages=128, page_size=page_size, step_tokens=step_tokens)
    jobs = [make_job(long_prompt(length, length), max_tokens=9) for length in (1, 5, 16, 33)]
    for job in jobs:
        engine.add(job)
    collected = run(engine)
    assert [collected.token_ids(job) for job in jobs] == [expected_answer(job) for job in jobs]


def test_preempted_jobs_lose_nothing_and_say_nothing_twice() -> None:
    engine, _ = make_engine(num_pages=8, page_size=2, max_context=16)
    jobs = [endless(long_prompt(3, 5 * i), max_tokens=12) for i in range(5)]
    for job in jobs:
        engine.add(job)
    collected = run(engine)
    assert engine.stats().num_preemptions_total > 0
    for job in jobs:
        assert collected.token_ids(job) == expected_answer(job, max_context=16)
        assert collected.text(job) == text_of(expected_answer(job, max_context=16))


def test_a_cancelled_job_frees_its_pages_at_once_and_is_heard_of_no_more() -> None:
    engine, _ = make_engine()
    job, other = endless([3, 4, 5, 6, 7]), endless([9, 8])
    engine.add(job)
    engine.add(other)
    engine.step()
    assert engine.cancel(job.id)
    assert engine.job_ids == [other.id]
    engine.check_conservation()
    assert engine.stats().num_held_pages == 1
    assert not engine.cancel(job.id)
    collected = run(engine)
    assert job.id not in collected.deltas
    assert collected.token_ids(other) == expected_answer(other)[1:]


def test_cancelling_what_was_never_held_does_nothing() -> None:
    engine, _ = make_engine()
    assert not engine.cancel("job-unknown")


def test_a_waiting_job_can_be_cancelled_before_it_starts() -> None:
    engine, _ = make_engine(max_sequences=1)
    first, second = endless([3, 4, 5]), endless([6])
    engine.add(first)
    engine.add(second)
    engine.step()
    engine.cancel(second.id)
    assert set(run(engine).terminals) == {first.id}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (make_job([1, VOCAB_SIZE]), "a prompt holds a token id outside 0 to 49"),
        (make_job([1, -1]), "a prompt holds a token id outside 0 to 49"),
        (make_job([1] * 128), "maximum context length is 128 tokens, and a prompt of 128"),
        (make_job([1], []), "a prompt needs at least one token"),
        (make_job(), "a prompt needs at least one token"),
        (make_job([1], max_tokens=-1), "max_tokens must be at least 0"),
        (make_job([1], job_fields={"n": 0}), "n must be at least 1"),
        (make_job([1], logit_bias=((50, 1.0),)), "logit_bias names a token id outside 0 to 49"),
    ],
)
def test_a_job_that_can_never_run_is_rejected_with_the_reason(job: Job, reason: str) -> None:
    engine, _ = make_engine()
    with pytest.raises(JobRejected, match=reason):
        engine.add(job)
    assert not engine.has_work


def test_the_pool_bounds_the_context() -> None:
    engine, _ = make_engine(num_pages=5, page_size=4)
    assert engine.max_context == 20
    with pytest.raises(JobRejected, match="maximum context length is 20 tokens"):
        engine.add(make_job([1] * 20))


def test_the_same_job_cannot_be_held_twice() -> None:
    engine, _ = make_engine()
    job = make_job([1])
    engine.add(job)
    with pytest.raises(ValueError, match="is held already"):
        engine.add(job)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("num_published", [1, 7, 19])
def test_a_job_taken_over_goes_on_after_its_replay_bit_for_bit(temperature: float, num_published: int) -> None:
    job = endless([3, 4, 5], [6, 7], stop=("never",), temperature=temperature)
    engine, _ = make_engine(end_token_ids=frozenset())
    engine.add(job)
    undisturbed = run(engine).deltas[job.id]
    other, _ = make_engine(step_tokens=5, end_token_ids=frozenset())
    other.add(job, undisturbed[:num_published])
    collected = run(other)
    for choice in range(2):
        assert [delta for delta in collected.deltas[job.id] if delta.choice == choice] == [
            delta for delta in undisturbed[num_published:] if delta.choice == choice
        ]
    assert collected.terminals[job.id] == Terminal("succeeded", "", "", 5, 40, 0)


def test_a_replay_restores_what_a_stop_string_held_back() -> None:
    job = endless([3, 4, 5])
    text = text_of(expected_answer(job))
    stopped = make_job(*job.prompts, max_tokens=20, stop=(text[3:6],))
    engine, _ = make_engine()
    engine.add(stopped)
    undisturbed = run(engine).deltas[stopped.id]
    other, _ = make_engine()
    other.add(stopped, undisturbed[:5])  # two characters of the stop string are in, and held back
    assert run(other).deltas[stopped.id] == undisturbed[5:]


def test_a_replay_that_holds_the_whole_answer_only_ends_the_job() -> None:
    job = endless([3, 4, 5], max_tokens=4)
    engine, model = make_engine()
    engine.add(job)
    deltas = run(engine).deltas[job.id]
    other, model = make_engine()
    other.add(job, deltas)
    assert other.has_work
    (output,) = other.step()
    assert (output.deltas, output.terminal) == ((), Terminal("succeeded", "", "", 3, 4, 0))
    assert not other.has_work
    assert model.batches == []


@pytest.mark.parametrize(
    "replay",
    [
        [Delta(2, (1,), "B")],
        [Delta(-1, (1,), "B")],
        [Delta(0, (1,), "B", "stop"), Delta(0, (1,), "B")],
        [Delta(0, (1,) * 8, "B" * 8)],
    ],
)
def test_a_replay_that_is_not_of_this_job_is_rejected(replay: list[Delta]) -> None:
    engine, _ = make_engine()
    with pytest.raises(JobRejected, match="replay"):
        engine.add(make_job([1], [2]), replay)
    assert not engine.has_work


def test_free_tokens_leave_out_what_is_held_and_what_is_promised() -> None:
    engine, _ = make_engine(num_pages=10, page_size=4, max_context=40)
    assert engine.rooms()[JobClass.INTERACTIVE].num_tokens == 40
    engine.add(endless([1] * 5, [2] * 3, max_tokens=20, job_fields={"expected_tokens": 4}))  # promised 3 pages and 2
    assert engine.rooms()[JobClass.INTERACTIVE].num_tokens == 20
    while engine.stats().num_held_pages <= 8:  # grows beyond the promise
        engine.step()
    assert engine.rooms()[JobClass.INTERACTIVE].num_tokens == 4
    run(engine)
    assert engine.rooms()[JobClass.INTERACTIVE].num_tokens == 40


def test_promises_beyond_the_pool_leave_nothing_free() -> None:
    engine, _ = make_engine(num_pages=4, page_size=4)
    engine.add(make_job(*[[1] * 9] * 3, job_fields={"expected_tokens": 4}))
    assert engine.rooms()[JobClass.INTERACTIVE].num_tokens == 0


def test_stats_count_what_was_done() -> None:
    engine, _ = make_engine(max_sequences=1)
    first, second = endless([3, 4, 5], max_tokens=4), endless([6, 7], max_tokens=3)
    engine.add(first)
    engine.add(second)
    engine.step()
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting) == (1, 1)
    assert (stats.num_pages, stats.num_free_pages, stats.num_held_pages, stats.num_cached_pages) == (64, 63, 1, 0)
    run(engine)
    stats = engine.stats()
    assert (stats.num_prompt_tokens_total, stats.num_generated_tokens_total) == (5, 7)
    assert (stats.num_running, stats.num_waiting) == (0, 0)


def test_a_step_without_work_does_nothing() -> None:
    engine, model = make_engine()
    assert engine.step() == []
    assert model.batches == []


def test_interactive_jobs_are_served_before_batch_jobs() -> None:
    engine, _ = make_engine(max_sequences=1)
    batch, interactive = endless([3], job_class=JobClass.BATCH), endless([4])
    engine.add(batch)
    engine.add(interactive)
    assert [output.job_id for output in engine.step()] == [interactive.id]


@pytest.mark.parametrize("policy", ["continuous", "static"])
def test_the_policy_does_not_change_an_answer(policy: str) -> None:
    engine, _ = make_engine(max_sequences=3, policy=policy)
    jobs = [make_job(long_prompt(length, length), max_tokens=9) for length in (1, 5, 16, 33, 2)]
    for job in jobs:
        engine.add(job)
    collected = run(engine)
    assert [collected.token_ids(job) for job in jobs] == [expected_answer(job) for job in jobs]
