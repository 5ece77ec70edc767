"""Penalties, biases, bans and logprobs: exact, and only for the rows that asked for them."""

import math
from typing import Any

import pytest
import torch

from tests.worker.engine.draws import LOGITS, Draws, chi_square, exact_probabilities, ids_of, params
from worker.engine.adjustments import Adjustment
from worker.engine.draw import Draw, RowParams, SamplingFailed

PROMPT = (4, 6, 4)
ANSWER = (2, 0, 2, 4)
END_IDS = frozenset({2, 10**6})  # a tokenizer may name an end token that the model does not have


def adjustment(**changes: Any) -> Adjustment:
    """As it is after PROMPT and ANSWER."""
    found = Adjustment(params(**changes), PROMPT, END_IDS)
    for token_id in ANSWER:
        found.add(token_id)
    return found


def adjusted_logits(**changes: Any) -> torch.Tensor:
    """Worked out token by token, in the documented order."""
    sampling = params(**changes)
    logits = LOGITS.tolist()
    for token_id in {*PROMPT, *ANSWER}:
        factor = sampling.repetition_penalty
        logits[token_id] = logits[token_id] / factor if logits[token_id] > 0 else logits[token_id] * factor
    for token_id in set(ANSWER):
        logits[token_id] -= sampling.presence_penalty + ANSWER.count(token_id) * sampling.frequency_penalty
    for token_id, bias in sampling.logit_bias:
        logits[token_id] += bias
    return torch.tensor(logits)


ADJUSTED: list[dict[str, Any]] = [
    {"presence_penalty": 1.2},
    {"presence_penalty": -0.8},
    {"frequency_penalty": 0.7},
    {"frequency_penalty": -0.5, "presence_penalty": 1.0},
    {"repetition_penalty": 1.5},
    {"repetition_penalty": 0.7},
    {"logit_bias": ((0, 3.0), (2, -2.0))},
    {"logit_bias": ((2, -100.0),)},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "logit_bias": ((5, 4.0), (4, 1.0)), "top_p": 0.9},
    {"presence_penalty": 0.5, "temperature": 0.6, "top_k": 4},
]


@pytest.mark.parametrize("changes", ADJUSTED)
def test_penalties_and_biases_shift_the_distribution_as_their_definition_says(
    draws: Draws, changes: dict[str, Any]
) -> None:
    counts = draws.many(LOGITS, adjustment=adjustment(**changes), **changes)
    statistic, freedom = chi_square(counts, exact_probabilities(adjusted_logits(**changes), params(**changes)))
    assert statistic <= freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("changes", ADJUSTED)
def test_a_greedy_choice_heeds_penalties_and_biases(draws: Draws, changes: dict[str, Any]) -> None:
    greedy = {**changes, "temperature": 0.0}
    assert draws.many(LOGITS, 3, adjustment(**greedy), **greedy)[adjusted_logits(**greedy).argmax()] == 3


def test_a_bias_of_a_hundred_forces_a_token(draws: Draws) -> None:
    assert draws.many(LOGITS, 200, adjustment(logit_bias=((5, 100.0),)))[5] == 200


def test_end_tokens_are_not_drawn_before_min_tokens(draws: Draws) -> None:
    found = adjustment(min_tokens=3)
    rows = [RowParams(found.sampling, 0, position, found) for position in range(60)]
    drawn = ids_of(draws.sample(LOGITS.expand(60, -1), rows))
    assert 2 not in drawn[:3]
    assert 2 in drawn[3:]


def test_only_what_asks_for_a_change_is_changed(draws: Draws) -> None:
    assert not Adjustment.is_wanted(params(stop=("x",), stop_token_ids=(3,), ignore_eos=True))
    for changes in [*ADJUSTED, {"min_tokens": 1}]:
        assert Adjustment.is_wanted(params(**changes))
    logits = LOGITS.repeat(3, 1)
    found = adjustment(logit_bias=((5, 100.0),))
    rows = [RowParams(params(seed=i), 0, 0, found if i == 1 else None) for i in range(3)]
    drawn = ids_of(draws.sample(logits, rows))
    assert drawn[1] == 5
    assert [drawn[0], drawn[2]] == [ids_of(draws.sample(LOGITS[None], [rows[i]]))[0] for i in (0, 2)]
    assert torch.equal(logits, LOGITS.repeat(3, 1))  # the model's logits are left alone


def test_a_bias_outside_the_vocabulary_fails_its_own_row_and_touches_no_other(draws: Draws) -> None:
    rows = [RowParams(params(seed=i), 0, 0) for i in range(3)]
    clean = draws.sample(LOGITS.repeat(3, 1), rows)
    rows[1] = RowParams(params(), 0, 0, adjustment(logit_bias=((40, 100.0),)))
    drawn = draws.sample(LOGITS.repeat(3, 1), rows)
    assert isinstance(drawn[1], SamplingFailed)
    assert "a token outside 0 to" in str(drawn[1])
    assert [drawn[0], drawn[2]] == [clean[0], clean[2]]


def test_a_row_in_which_everything_is_banned_fails(draws: Draws) -> None:
    found = Adjustment(params(min_tokens=1), (), frozenset(range(len(LOGITS))))
    (drawn,) = draws.sample(LOGITS[None], [RowParams(found.sampling, 0, 0, found)])
    assert isinstance(drawn, SamplingFailed)


@pytest.mark.parametrize("num_top", [0, 1, 3, 8])
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.0}, {"temperature": 0.3, "top_k": 2}, {"top_p": 0.2}])
def test_logprobs_are_those_of_the_model_whatever_is_drawn_and_how(
    draws: Draws, num_top: int, changes: dict[str, Any]
) -> None:
    found = adjustment(logit_bias=((1, 5.0),), presence_penalty=1.0)
    (drawn,) = draws.sample(LOGITS[None], [RowParams(params(logprobs=num_top, **changes), 0, 0, found)])
    expected = LOGITS.double().log_softmax(0)
    assert isinstance(drawn, Draw)
    assert drawn.logprobs is not None
    assert drawn.logprobs.chosen == pytest.approx(expected[drawn.token_id].item(), abs=1e-6)
    assert [token_id for token_id, _ in drawn.logprobs.top] == expected.argsort(descending=True)[:num_top].tolist()
    assert [value for _, value in drawn.logprobs.top] == pytest.approx(
        expected.sort(descending=True).values[:num_top].tolist(), abs=1e-6
    )


def test_equal_logprobs_are_listed_by_id_and_rows_without_the_wish_have_none(draws: Draws) -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    drawn = draws.sample(logits, [RowParams(params(logprobs=3), 0, 0), RowParams(params(), 0, 0)])
    assert isinstance(drawn[0], Draw)
    assert drawn[0].logprobs is not None
    assert [token_id for token_id, _ in drawn[0].logprobs.top] == [1, 2, 3]
    assert isinstance(drawn[1], Draw)
    assert drawn[1].logprobs is None


@pytest.mark.parametrize("vocab_size", [50257, 151936])
def test_a_large_vocabulary_gives_each_row_the_same_in_any_crowd(draws: Draws, vocab_size: int) -> None:
    """Sharp and flat rows, so that cuts fall among the candidates and far beyond them."""
    generator = torch.Generator().manual_seed(1)
    spread = torch.tensor([0.3, 1.0, 3.0, 6.0]).repeat(3).unsqueeze(1)
    logits = torch.randn(12, vocab_size, generator=generator) * spread
    kinds: list[dict[str, Any]] = [
        {}, {"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.02}, {"top_k": 4000, "top_p": 0.97}, {"temperature": 0.0},
    ]  # fmt: skip
    rows = [
        RowParams(params(seed=i, logprobs=i % 5, **kinds[i % len(kinds)]), 0, i) if i % 2 else
        RowParams(params(seed=i, **kinds[i % len(kinds)]), 0, i, adjustment(presence_penalty=0.5))
        for i in range(12)
    ]  # fmt: skip
    alone = [draws.sample(logits[i : i + 1], [rows[i]])[0] for i in range(12)]
    assert draws.sample(logits, rows) == alone
    assert draws.sample(logits[3:9], rows[3:9]) == alone[3:9]
