"""What the model thinks of the prompt, told with the first delta of its first choice."""

from typing import Any

import pytest
import torch

from tests.worker.engine.doubles import (
    VOCAB_SIZE,
    Collected,
    letter,
    long_prompt,
    make_engine,
    make_job,
    next_token,
    run,
)
from worker.engine.engine import Engine
from worker.protocol.event import Delta
from worker.protocol.job import Job

PROMPT = long_prompt(23)


def logits_after(token_ids: list[int]) -> torch.Tensor:
    return torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(next_token(token_ids)))


def engine_of(**sizes: Any) -> Engine:
    engine, model = make_engine(**sizes)
    model.logits_after = logits_after
    return engine


def answered(engine: Engine, *jobs: Job) -> Collected:
    for job in jobs:
        engine.add(job)
    return run(engine)


def check(told: Delta, prompt: list[int], num_top: int) -> None:
    """That the delta tells exactly what the model says after each beginning of the prompt."""
    assert told.prompt_logprobs[0] is None
    assert len(told.prompt_logprobs) == len(prompt)
    for place in range(1, len(prompt)):
        token, expected = told.prompt_logprobs[place], logits_after(prompt[:place]).log_softmax(0)
        assert token is not None
        assert (token.chosen.token_id, token.chosen.text) == (prompt[place], letter(prompt[place]).encode())
        assert token.chosen.logprob == pytest.approx(expected[prompt[place]].item(), abs=1e-5)
        best = expected.topk(num_top) if num_top else ()
        assert [each.token_id for each in token.top] == (best[1].tolist() if best else [])


@pytest.mark.parametrize(
    "sizes", [{}, {"step_tokens": 5}, {"step_tokens": 1}, {"page_size": 1}, {"prefix_cache": False}]
)
def test_the_first_delta_tells_of_each_prompt_token(sizes: dict[str, Any]) -> None:
    job = make_job(PROMPT, PROMPT[:3], max_tokens=4, prompt_logprobs=2, job_fields={"n": 2})
    deltas = answered(engine_of(**sizes), job).deltas[job.id]
    for choice, prompt in ((0, PROMPT), (2, PROMPT[:3])):
        first, *others = [delta for delta in deltas if delta.choice == choice]
        check(first, prompt, 2)
        assert not any(delta.prompt_logprobs for delta in others)
    assert not any(delta.prompt_logprobs for delta in deltas if delta.choice in (1, 3))


def test_a_prompt_that_is_known_already_is_told_in_full_too() -> None:
    engine = engine_of()
    plain, asked = make_job(PROMPT), make_job(PROMPT, prompt_logprobs=0)
    collected = answered(engine, plain)
    collected = answered(engine, asked)
    check(collected.deltas[asked.id][0], PROMPT, 0)
    assert collected.terminals[asked.id].num_cached_tokens == 0


def test_given_that_no_answer_is_wanted_then_the_prompt_alone_is_told() -> None:
    job = make_job(PROMPT, [5], max_tokens=0, prompt_logprobs=1)
    collected = answered(engine_of(step_tokens=7), job)
    first, second = sorted(collected.deltas[job.id], key=lambda delta: delta.choice)
    check(first, PROMPT, 1)
    assert (first.token_ids, first.text, first.finish) == ((), "", "length")
    assert second.prompt_logprobs == (None,)
    assert collected.terminals[job.id].num_completion_tokens == 0


def test_given_that_nothing_at_all_is_wanted_then_the_choice_ends_at_once() -> None:
    job = make_job([5, 6], max_tokens=0, job_fields={"n": 2})
    collected = answered(engine_of(), job)
    assert collected.deltas[job.id] == [Delta(0, (), "", "length"), Delta(1, (), "", "length")]
    assert collected.terminals[job.id].state == "succeeded"


def test_preemption_and_a_crash_change_nothing_of_it() -> None:
    jobs = [make_job(PROMPT[i:], max_tokens=12, prompt_logprobs=1) for i in range(3)]
    collected = answered(engine_of(num_pages=10, step_tokens=6), *jobs)
    for i, job in enumerate(jobs):
        check(collected.deltas[job.id][0], PROMPT[i:], 1)
    deltas = collected.deltas[jobs[0].id]
    successor = engine_of()
    successor.add(jobs[0], deltas[:2])
    assert run(successor).deltas[jobs[0].id] == deltas[2:]
