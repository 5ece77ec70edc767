"""The engine over a fake model: what each job gets, however crowded it is and whatever goes wrong beside it."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.doubles import (
    END_TOKEN,
    VOCAB_SIZE,
    Collected,
    expected_answer,
    letter,
    make_engine,
    make_job,
    next_token,
    one_hot,
    run,
)
from worker.engine.engine import Engine, JobRejected
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import Job, JobClass

POISON = 49


def text_of(token_ids: list[int]) -> str:
    return "".join(letter(token_id) for token_id in token_ids if token_id != END_TOKEN)


def long_prompt(job_of_length: int, start: int = 1) -> list[int]:
    return [1 + (start + i) % (VOCAB_SIZE - 2) for i in range(job_of_length)]


def endless(*prompts: list[int], **changes: Any) -> Job:
    """A job whose first 20 tokens bring no end token."""
    for shift in range(50):
        shifted = [[1 + (token_id + shift) % (VOCAB_SIZE - 2) for token_id in prompt] for prompt in prompts]
        job = make_job(*shifted, **{"max_tokens": 20, **changes})
        if all(END_TOKEN not in expected_answer(job, choice) for choice in range(len(prompts))):
            return job
    raise AssertionError("no such prompt")


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
        (make_job([1], max_tokens=0), "max_tokens must be at least 1"),
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


def failed(collected: Collected, job: Job) -> str:
    terminal = collected.terminals[job.id]
    assert (terminal.state, terminal.code) == ("failed", "engine_error")
    return terminal.message


def test_a_sequence_whose_logits_are_not_finite_fails_alone_and_its_pages_are_scrubbed() -> None:
    engine, model = make_engine()
    model.logits_after = lambda ids: torch.full((VOCAB_SIZE,), torch.nan) if POISON in ids else one_hot(next_token(ids))
    good, bad = endless([3, 4, 5]), make_job([6, POISON, 7])
    engine.add(bad)
    engine.add(good)
    collected = run(engine)
    assert failed(collected, bad) == "SamplingFailed: the model's logits are not finite"
    assert model.scrubbed == [0]  # before the next forward pass, whoever holds it then
    assert collected.token_ids(good) == expected_answer(good)


def test_sampling_parameters_that_raise_fail_their_own_job() -> None:
    engine, _ = make_engine()
    good, bad = endless([3, 4, 5]), make_job([6], temperature=1.0, top_p="most")
    engine.add(good)
    engine.add(bad)
    collected = run(engine)
    assert "TypeError" in failed(collected, bad)
    assert collected.token_ids(good) == expected_answer(good)


def test_a_detokenizer_that_raises_fails_its_own_job() -> None:
    engine, model = make_engine()
    model.logits_after = lambda ids: one_hot(7 if ids[0] == POISON else next_token(ids))
    good, bad = endless([3, 4, 5], [5]), make_job([POISON], [9], stop=(5,))  # type: ignore[arg-type]
    engine.add(bad)
    engine.add(good)
    collected = run(engine)
    assert "TypeError" in failed(collected, bad)
    assert [collected.token_ids(good, choice) for choice in range(2)] == [expected_answer(good, c) for c in range(2)]


@pytest.mark.parametrize("error", [RuntimeError("kernel"), torch.OutOfMemoryError("out of memory"), ValueError("x")])
def test_a_forward_pass_that_raises_fails_its_batch_and_the_engine_goes_on(error: Exception) -> None:
    engine, model = make_engine(max_sequences=2)
    jobs = [endless([3, 4, 5]), endless([6, 7]), endless([8])]
    for job in jobs:
        engine.add(job)
    collected = Collected()
    collected.take(engine.step())
    model.failure = error
    collected.take(engine.step())
    engine.check_conservation()
    model.failure = None
    run(engine, collected)
    for job in jobs[:2]:
        assert failed(collected, job) == f"{type(error).__name__}: {error}"
        assert collected.terminals[job.id].num_completion_tokens == 1
    assert collected.token_ids(jobs[2]) == expected_answer(jobs[2])
    assert engine.stats().num_failed_jobs_total == 2


def test_free_tokens_leave_out_what_is_held_and_what_is_promised() -> None:
    engine, _ = make_engine(num_pages=10, page_size=4, max_context=40)
    assert engine.free_tokens() == 40
    engine.add(endless([1] * 5, [2] * 3, max_tokens=20, job_fields={"expected_tokens": 4}))  # promised 3 pages and 2
    assert engine.free_tokens() == 20
    while engine.stats().num_held_pages <= 8:  # grows beyond the promise
        engine.step()
    assert engine.free_tokens() == 4
    run(engine)
    assert engine.free_tokens() == 40


def test_promises_beyond_the_pool_leave_nothing_free() -> None:
    engine, _ = make_engine(num_pages=4, page_size=4)
    engine.add(make_job(*[[1] * 9] * 3, job_fields={"expected_tokens": 4}))
    assert engine.free_tokens() == 0


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


def test_a_prompt_seen_before_is_not_computed_again() -> None:
    engine, model = make_engine()
    prompt = long_prompt(18)
    for job, num_cached in [(make_job(prompt), 0), (make_job(prompt), 16), (make_job([*prompt[:9], 2, 2]), 8)]:
        engine.add(job)
        before = len(model.batches)
        collected = run(engine)
        assert collected.token_ids(job) == expected_answer(job)
        assert collected.terminals[job.id].num_cached_tokens == num_cached
        assert len(model.batches[before].token_ids) == len(job.prompts[0]) - num_cached


def test_the_next_turn_of_a_talk_finds_the_answer_before_it() -> None:
    engine, _ = make_engine()
    first = endless(long_prompt(6), max_tokens=10)
    engine.add(first)
    answer = run(engine).token_ids(first)
    second = make_job([*first.prompts[0], *answer, 3, 3])
    engine.add(second)
    collected = run(engine)
    assert collected.token_ids(second) == expected_answer(second)
    assert collected.terminals[second.id].num_cached_tokens == 12  # the last token of the answer was never computed


def test_another_tenant_never_finds_a_prompt() -> None:
    engine, _ = make_engine()
    for tenant, num_cached in [("one", 0), ("two", 0), ("one", 16)]:
        job = make_job(long_prompt(18), job_fields={"tenant": tenant})
        engine.add(job)
        assert run(engine).terminals[job.id].num_cached_tokens == num_cached


def test_with_the_prefix_cache_off_nothing_is_kept() -> None:
    engine, _ = make_engine(prefix_cache=False)
    for _ in range(2):
        job = make_job(long_prompt(18))
        engine.add(job)
        collected = run(engine)
        assert collected.token_ids(job) == expected_answer(job)
        assert collected.terminals[job.id].num_cached_tokens == 0
        assert engine.stats().num_cached_pages == 0


def test_a_burst_of_like_prompts_computes_their_beginning_once() -> None:
    engine, model = make_engine(step_tokens=64)
    jobs = [make_job([*long_prompt(17), 5 + i], max_tokens=1) for i in range(6)]
    for job in jobs:
        engine.add(job)
    collected = run(engine)
    assert [len(batch.token_ids) for batch in model.batches] == [18, 5 * 2]
    assert [collected.token_ids(job) for job in jobs] == [expected_answer(job) for job in jobs]
    assert [collected.terminals[job.id].num_cached_tokens for job in jobs] == [0, 16, 16, 16, 16, 16]


def test_cached_pages_are_free_for_others_and_counted_so() -> None:
    engine, _ = make_engine(num_pages=8, page_size=4, max_context=32)
    engine.add(make_job(long_prompt(13), max_tokens=1))
    run(engine)
    stats = engine.stats()
    assert (stats.num_free_pages, stats.num_cached_pages, stats.num_held_pages) == (5, 3, 0)
    assert engine.free_tokens() == 32
    job = endless(long_prompt(20, 30), max_tokens=12)
    engine.add(job)
    assert run(engine).token_ids(job) == expected_answer(job, max_context=32)


def test_a_preempted_sequence_comes_back_to_the_pages_that_are_left_of_it() -> None:
    engine, model = make_engine(num_pages=8, page_size=2, max_context=16)
    jobs = [endless(long_prompt(3, 5 * i), max_tokens=12) for i in range(5)]
    for job in jobs:
        engine.add(job)
    run(engine)
    num_again = sum(len(batch.token_ids) for batch in model.batches)
    bare, bare_model = make_engine(num_pages=8, page_size=2, max_context=16, prefix_cache=False)
    for job in jobs:
        bare.add(job)
    run(bare)
    assert bare.stats().num_preemptions_total > 0
    assert num_again < sum(len(batch.token_ids) for batch in bare_model.batches)


def test_a_job_taken_over_finds_what_its_first_owner_left_in_the_same_pool() -> None:
    engine, model = make_engine()
    job = endless(long_prompt(10), max_tokens=12)
    engine.add(job)
    deltas = [delta for _ in range(8) for output in engine.step() for delta in output.deltas]
    engine.cancel(job.id)
    engine.add(job, deltas)
    before = len(model.batches)
    collected = run(engine)
    assert len(model.batches[before].token_ids) == 2  # 18 tokens, of which 16 were found
    assert [id for delta in deltas for id in delta.token_ids] + collected.token_ids(job) == expected_answer(job)
    assert collected.terminals[job.id].num_cached_tokens == 10


def test_what_a_failed_sequence_computed_is_never_found_again() -> None:
    engine, model = make_engine()
    model.logits_after = lambda ids: torch.full((VOCAB_SIZE,), torch.nan) if POISON in ids else one_hot(next_token(ids))
    engine.add(make_job([*long_prompt(8), POISON]))
    run(engine)
    assert engine.stats().num_cached_pages == 0
    job = make_job(long_prompt(9))
    engine.add(job)
    collected = run(engine)
    assert collected.token_ids(job) == expected_answer(job)
    assert collected.terminals[job.id].num_cached_tokens == 0


def test_several_answers_to_a_prompt_share_its_pages_and_differ_by_their_draws() -> None:
    for prefix_cache in (True, False):
        engine, model = make_engine(step_tokens=64, end_token_ids=frozenset(), prefix_cache=prefix_cache)
        job = make_job(long_prompt(18), long_prompt(6, 30), max_tokens=6, temperature=5.0, job_fields={"n": 3})
        engine.add(job)
        collected = Collected()
        collected.take(engine.step())
        collected.take(engine.step())
        assert [len(batch.token_ids) for batch in model.batches] == [18 + 6, 2 + 2 * 2 + 2 * 2]
        assert engine.stats().num_held_pages == (4 + 3) + (1 + 3)  # shared ones, and each its own last
        run(engine, collected)
        answers = [tuple(collected.token_ids(job, choice)) for choice in range(6)]
        assert len(set(answers)) == 6
        assert {len(answer) for answer in answers} == {6}
        assert collected.terminals[job.id] == Terminal("succeeded", "", "", 24, 36, 0)
        assert engine.stats().num_prompt_tokens_total == 24


def test_greedy_answers_to_one_prompt_are_all_the_same() -> None:
    engine, _ = make_engine(num_pages=12, max_context=40)
    job = endless(long_prompt(11), max_tokens=10, job_fields={"n": 5})
    engine.add(job)
    collected = run(engine)
    assert [collected.token_ids(job, choice) for choice in range(5)] == [expected_answer(job)] * 5


def test_a_promise_counts_shared_pages_once() -> None:
    engine, _ = make_engine(num_pages=20, page_size=4)
    engine.add(make_job(long_prompt(9), job_fields={"n": 3, "expected_tokens": 3}))
    assert engine.free_tokens() == (20 - (3 + 1 + 1)) * 4


@pytest.mark.parametrize("policy", ["continuous", "static"])
def test_the_policy_does_not_change_an_answer(policy: str) -> None:
    engine, _ = make_engine(max_sequences=3, policy=policy)
    jobs = [make_job(long_prompt(length, length), max_tokens=9) for length in (1, 5, 16, 33, 2)]
    for job in jobs:
        engine.add(job)
    collected = run(engine)
    assert [collected.token_ids(job) for job in jobs] == [expected_answer(job) for job in jobs]


def test_logprobs_come_with_each_token_but_not_with_the_end() -> None:
    engine, model = make_engine()
    model.logits_after = lambda token_ids: one_hot(END_TOKEN if len(token_ids) == 4 else 9)
    job = make_job([1, 2], logprobs=1)
    plain = make_job([1, 2])
    engine.add(job)
    engine.add(plain)
    collected = run(engine)
    *told, last = [delta.logprobs for delta in collected.deltas[job.id]]
    assert last == ()
    assert told[0] == told[1]
    ((chosen, top),) = ((entry.chosen, entry.top) for entry in told[0])
    assert top == (chosen,)
    assert (chosen.token_id, chosen.text) == (9, letter(9).encode())
    assert chosen.logprob == pytest.approx(-math.log1p((VOCAB_SIZE - 1) * math.exp(-10)), abs=1e-6)
    assert {delta.logprobs for delta in collected.deltas[plain.id]} == {()}


def test_a_job_taken_over_is_penalized_for_what_it_said_before() -> None:
    job = make_job([3, 4], max_tokens=12, presence_penalty=1.5, frequency_penalty=0.7, repetition_penalty=1.2)
    engine, model = make_engine(end_token_ids=frozenset())
    model.logits_after = lambda _: torch.arange(VOCAB_SIZE).float() / 10
    engine.add(job)
    undisturbed = run(engine).deltas[job.id]
    assert [delta.token_ids[0] for delta in undisturbed[:4]] == [49, 48, 47, 46]
    other, model = make_engine(end_token_ids=frozenset())
    model.logits_after = lambda _: torch.arange(VOCAB_SIZE).float() / 10
    other.add(job, undisturbed[:5])
    assert run(other).deltas[job.id] == undisturbed[5:]


def test_min_tokens_and_end_tokens_of_its_own_shape_an_answer() -> None:
    engine, model = make_engine()
    model.logits_after = lambda _: one_hot(END_TOKEN)
    patient = make_job([1], min_tokens=3, max_tokens=9)
    ignoring = make_job([1], ignore_eos=True, max_tokens=2)
    named = make_job([1], stop_token_ids=(7,), logit_bias=((7, 50.0),), max_tokens=9)
    for job in (patient, ignoring, named):
        engine.add(job)
    collected = run(engine)
    assert len(collected.token_ids(patient)) == 4
    assert END_TOKEN not in collected.token_ids(patient)[:3]
    assert (collected.token_ids(ignoring), collected.finish(ignoring)) == ([END_TOKEN] * 2, "length")
    assert (collected.token_ids(named), collected.text(named), collected.finish(named)) == ([7], "", "stop")


beginnings = st.sampled_from([(), tuple(range(1, 6)), tuple(range(1, 12))])
prompts = st.lists(
    st.builds(
        lambda head, tail: [*head, *tail],
        beginnings,
        st.lists(st.integers(1, VOCAB_SIZE - 1), min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=3,
)
jobs_to_come = st.builds(
    lambda prompts, max_tokens, job_class, n, tenant: make_job(
        *prompts, max_tokens=max_tokens, job_class=job_class, job_fields={"n": n, "tenant": tenant}
    ),
    prompts,
    st.integers(1, 20),
    st.sampled_from(list(JobClass)),
    st.sampled_from([1, 1, 3]),
    st.sampled_from(["a", "b"]),
)
events = st.lists(st.one_of(jobs_to_come, st.integers(0, 9), st.none()), max_size=25)


def act(engine: Engine, jobs: list[Job], cancelled: set[str], event: Job | int | None) -> None:
    if isinstance(event, Job):
        jobs.append(event)
        engine.add(event)
    elif event is not None and jobs:
        job_id = jobs[event % len(jobs)].id
        if engine.cancel(job_id):
            cancelled.add(job_id)


@settings(max_examples=150, deadline=None)
@given(events, st.integers(1, 5), st.integers(1, 5), st.integers(1, 12), st.booleans(), st.integers(0, 6))
def test_whatever_comes_goes_or_is_preempted_every_other_job_gets_exactly_its_answer(
    script: list[Any], page_size: int, max_sequences: int, step_tokens: int, prefix_cache: bool, spare: int
) -> None:
    max_context = 24
    num_pages = -(-max_context // page_size) + spare
    engine, model = make_engine(
        num_pages, page_size, max_sequences, step_tokens, max_context, prefix_cache=prefix_cache
    )
    jobs: list[Job] = []
    cancelled: set[str] = set()
    collected = Collected()
    for event in script:
        act(engine, jobs, cancelled, event)
        if event is None:
            collected.take(engine.step())
        engine.check_conservation()
    run(engine, collected)
    for batch in model.batches:
        assert len(batch.token_ids) <= step_tokens
        assert len(batch.kv_lengths) <= max_sequences
    for job in jobs:
        if job.id not in cancelled:
            answers = [expected_answer(job, choice, max_context) for choice in range(job.num_choices)]
            assert [collected.token_ids(job, choice) for choice in range(job.num_choices)] == answers
            assert collected.terminals[job.id].num_completion_tokens == sum(map(len, answers))
            assert collected.terminals[job.id].num_cached_tokens < job.num_prompt_tokens
