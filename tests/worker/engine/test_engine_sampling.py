"""What the engine makes of sampling parameters beyond the draw itself: logprobs, penalties, the end of an answer."""

import math

import pytest
import torch

from tests.worker.engine.doubles import (
    END_TOKEN,
    VOCAB_SIZE,
    letter,
    make_engine,
    make_job,
    one_hot,
    run,
)


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
