"""Whatever goes wrong beside a job, or in it: who fails, who does not, and what is left behind."""

import pytest
import torch

from tests.worker.engine.doubles import (
    VOCAB_SIZE,
    Collected,
    endless,
    expected_answer,
    long_prompt,
    make_engine,
    make_job,
    next_token,
    one_hot,
    run,
)
from worker.protocol.job import Job

POISON = 49


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
