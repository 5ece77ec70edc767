"""Answers that follow a grammar, beside others that do not."""

import re
from typing import Any

import pytest
import torch
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from tests.worker.engine.doubles import (
    END_TOKEN,
    VOCAB_SIZE,
    Collected,
    expected_answer,
    letter,
    make_engine,
    make_job,
    next_token,
    run,
)
from worker.engine import grammar as grammar_module
from worker.engine.engine import Engine
from worker.engine.grammar import MASKS_S, AnswerGrammar, MakeGrammar
from worker.protocol.job import Job

PATTERN = "[B-F]{3}X?[B-F]{2}"


class _Letters:
    """The fake model's vocabulary, one letter a token."""

    eos_token_id = END_TOKEN
    bos_token_id = None
    tokens = tuple(letter(token_id).encode() for token_id in range(VOCAB_SIZE))
    special_token_ids = (END_TOKEN,)

    def __call__(self, text: bytes) -> list[int]:
        return [byte - ord("A") for byte in text]


@pytest.fixture(scope="module")
def make_grammar() -> MakeGrammar:
    tokenizer = LLTokenizer(TokenizerWrapper(_Letters()))
    return lambda grammar: AnswerGrammar(LLMatcher(tokenizer, grammar, log_level=0))


def engine_with(make_grammar: MakeGrammar, **sizes: Any) -> Engine:
    engine, model = make_engine(make_grammar=make_grammar, **sizes)

    def varied(token_ids: list[int]) -> torch.Tensor:
        return torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(next_token(token_ids)))

    model.logits_after = varied
    return engine


def ruled(*prompts: list[int], pattern: str = PATTERN, **changes: Any) -> Job:
    fields = {"grammar": LLMatcher.grammar_from_regex(pattern), "temperature": 1.0, "max_tokens": 30, **changes}
    return make_job(*prompts, **fields)


def answers(collected: Collected, job: Job) -> list[str]:
    return [collected.text(job, choice) for choice in range(job.num_choices)]


def test_every_choice_matches_and_ends_with_the_match(make_grammar: MakeGrammar) -> None:
    engine = engine_with(make_grammar)
    job = ruled([1, 2, 3], [4, 5], job_fields={"n": 8})
    engine.add(job)
    collected = run(engine)
    texts = answers(collected, job)
    assert all(re.fullmatch(PATTERN, text) for text in texts)
    assert len(set(texts)) > 8
    assert [collected.finish(job, choice) for choice in range(16)] == ["stop"] * 16
    # Nothing could follow, so no step was spent on an end token.
    assert collected.terminals[job.id].num_completion_tokens == sum(map(len, texts))


def test_where_the_grammar_may_end_or_go_on_the_model_chooses(make_grammar: MakeGrammar) -> None:
    engine = engine_with(make_grammar)
    job = ruled([1, 2, 3], pattern="[B-Z]+", job_fields={"n": 16})
    engine.add(job)
    collected = run(engine)
    lengths = {len(text) for text in answers(collected, job)}
    assert len(lengths) > 3
    assert all(re.fullmatch("[B-Z]+", text) for text in answers(collected, job))


def test_the_limit_cuts_an_answer_off_and_says_so(make_grammar: MakeGrammar) -> None:
    engine = engine_with(make_grammar)
    job = ruled([1, 2, 3], max_tokens=3)
    engine.add(job)
    collected = run(engine)
    assert (len(collected.text(job)), collected.finish(job)) == (3, "length")


def test_neighbours_without_a_grammar_answer_as_if_they_were_alone(make_grammar: MakeGrammar) -> None:
    engine, _ = make_engine(make_grammar=make_grammar)
    free, job = make_job([7, 8, 9], max_tokens=20), ruled([1, 2, 3])
    engine.add(job)
    engine.add(free)
    collected = run(engine)
    assert collected.token_ids(free) == expected_answer(free)
    assert re.fullmatch(PATTERN, collected.text(job))


@pytest.mark.parametrize("num_told", [1, 3, 5])
def test_after_a_crash_the_answer_goes_on_as_it_would_have(make_grammar: MakeGrammar, num_told: int) -> None:
    job = ruled([1, 2, 3], pattern="[B-F]{8}")
    engine = engine_with(make_grammar)
    engine.add(job)
    deltas = run(engine).deltas[job.id]
    successor = engine_with(make_grammar)
    successor.add(job, deltas[:num_told])
    assert run(successor).deltas[job.id] == deltas[num_told:]


def test_preemption_changes_nothing(make_grammar: MakeGrammar) -> None:
    jobs = [ruled([1 + i, 2, 3], pattern="[B-F]{18}", seed=i) for i in range(4)]
    texts = []
    for num_pages in (64, 8):
        engine = engine_with(make_grammar, num_pages=num_pages)
        for job in jobs:
            engine.add(job)
        collected = run(engine)
        texts.append([collected.text(job) for job in jobs])
        assert (engine.stats().num_preemptions_total > 0) == (num_pages == 8)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("sizes", [{}, {"step_tokens": 5}, {"page_size": 1}, {"prefix_cache": False}])
def test_masks_that_come_late_change_nothing_but_the_time(
    make_grammar: MakeGrammar, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, Any]
) -> None:
    free, jobs = make_job([7, 8, 9], max_tokens=20), [ruled([1 + i, 2, 3, 4], job_fields={"n": 4}) for i in range(2)]
    texts = []
    for seconds in (MASKS_S, -1.0):
        monkeypatch.setattr(grammar_module, "MASKS_S", seconds)
        engine = engine_with(make_grammar, **sizes)
        for job in (*jobs, free):
            engine.add(job)
        collected = run(engine)
        texts.append([answers(collected, job) for job in jobs])
        assert {each.state for each in collected.terminals.values()} == {"succeeded"}
    assert texts[0] == texts[1]


def test_a_grammar_that_cannot_be_made_fails_its_job_alone(make_grammar: MakeGrammar) -> None:
    engine = engine_with(make_grammar)
    bad, good = ruled([1, 2], pattern="("), ruled([3, 4])
    engine.add(bad)
    engine.add(good)
    collected = run(engine)
    assert (collected.terminals[bad.id].state, collected.terminals[bad.id].code) == ("failed", "invalid_request")
    assert collected.terminals[good.id].state == "succeeded"


def test_an_engine_without_grammars_fails_such_jobs() -> None:
    engine, _ = make_engine()
    job = ruled([1, 2])
    engine.add(job)
    terminal = run(engine).terminals[job.id]
    assert (terminal.state, terminal.code) == ("failed", "invalid_request")
    assert terminal.message == "The answer cannot follow its grammar: this engine follows no grammars."


def test_a_job_cancelled_while_its_grammar_is_made_is_gone(make_grammar: MakeGrammar) -> None:
    engine = engine_with(make_grammar)
    job = ruled([1, 2])
    engine.add(job)
    assert engine.cancel(job.id)
    assert not engine.has_work
    assert run(engine).terminals == {}
