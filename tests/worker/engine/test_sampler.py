"""The sampler: exact distributions, draws that depend on seed, choice and position alone, and rows that fail alone."""

import math
from typing import Any

import pytest
import torch

from worker.engine.adjustments import Adjustment
from worker.engine.filters import wide_cutoff
from worker.engine.sampler import Draw, RowParams, SamplingFailed, sample, uniform
from worker.protocol.job import SamplingParams

NUM_DRAWS = 4000
LOGITS = torch.tensor([1.0, 2.0, 3.0, 0.0, 2.5, -1.0, 1.7, 0.5])


def params(**changes: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 1, "seed": 5, **changes})


def ids_of(draws: list[Draw | SamplingFailed]) -> list[int]:
    return [draw.token_id for draw in draws if isinstance(draw, Draw)]


def draw_many(
    logits: torch.Tensor, num_draws: int = NUM_DRAWS, adjustment: Adjustment | None = None, **changes: Any
) -> torch.Tensor:
    """How often each token was drawn."""
    rows = [RowParams(params(**changes), 0, position, adjustment) for position in range(num_draws)]
    drawn = ids_of(sample(logits.expand(num_draws, -1), rows))
    assert len(drawn) == num_draws
    return torch.bincount(torch.tensor(drawn), minlength=logits.shape[0])


def exact_probabilities(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """The filters one after the other, each over what the one before it kept, as transformers applies them."""
    scaled = logits.double() / sampling.temperature
    if sampling.top_k:
        scaled[scaled < scaled.topk(min(sampling.top_k, len(scaled))).values[-1]] = -math.inf
    order = scaled.argsort(descending=True)
    probabilities = scaled.softmax(0)[order]
    is_cut = probabilities.cumsum(0) - probabilities >= sampling.top_p
    is_cut[0] = False
    if sampling.top_p < 1:
        scaled[order[is_cut]] = -math.inf
    probabilities = scaled.softmax(0)
    scaled[probabilities < sampling.min_p * probabilities.max()] = -math.inf
    return scaled.softmax(0)


def chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> tuple[float, int]:
    """The statistic, and its degrees of freedom. Tokens without probability must not have been drawn."""
    is_possible = probabilities > 0
    assert counts[~is_possible].sum() == 0
    expected = probabilities[is_possible] * counts.sum()
    return ((counts[is_possible] - expected) ** 2 / expected).sum().item(), int(is_possible.sum()) - 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.7},
        {"top_p": 0.05},
        {"min_p": 0.3},
        {"top_k": 4, "top_p": 0.6},
        {"top_k": 5, "top_p": 0.9, "min_p": 0.25, "temperature": 1.3},
        {"top_k": 100, "top_p": 0.999},
    ],
)
def test_tokens_are_drawn_as_often_as_their_probability_says(changes: dict[str, Any]) -> None:
    counts = draw_many(LOGITS, **changes)
    statistic, freedom = chi_square(counts, exact_probabilities(LOGITS.clone(), params(**changes)))
    # Four standard deviations of the chi-square distribution: the draws are the same in every run.
    assert statistic <= freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("changes", [{}, {"top_p": 0.95}, {"top_k": 700}, {"top_k": 20}, {"min_p": 0.01}])
def test_large_vocabularies_are_drawn_from_exactly(changes: dict[str, Any]) -> None:
    """Flat logits: top_p and top_k keep more tokens than the candidates that are looked at first."""
    logits = torch.randn(2000, generator=torch.Generator().manual_seed(3)) * 0.5
    counts = draw_many(logits, 3000, **changes)
    probabilities = exact_probabilities(logits.clone(), params(**changes))
    order = probabilities.argsort(descending=True)
    bins = [part for part in order.chunk(16) if probabilities[part].sum() > 0]
    grouped_counts = torch.stack([counts[part].sum() for part in bins])
    grouped_probabilities = torch.stack([probabilities[part].sum() for part in bins])
    assert counts[probabilities == 0].sum() == 0
    statistic, freedom = chi_square(grouped_counts, grouped_probabilities)
    assert statistic <= freedom + 4 * math.sqrt(2 * max(1, freedom))


@pytest.mark.parametrize(
    "changes", [{"temperature": 0.0}, {"temperature": 1e-9}, {"temperature": 1e-320}, {"top_k": 1}]
)
def test_no_or_next_to_no_temperature_is_greedy(changes: dict[str, Any]) -> None:
    assert draw_many(LOGITS * 1e4, 50, **changes)[2] == 50


def test_the_lowest_temperatures_above_that_do_not_overflow() -> None:
    assert draw_many(LOGITS * 1e4, 50, temperature=1e-5)[2] == 50


def test_equal_logits_at_the_cut_stay_together() -> None:
    counts = draw_many(torch.tensor([2.0, 2.0, 2.0, 0.0]), 600, top_k=2)
    assert counts[3] == 0
    assert counts[:3].min() > 0


def test_tokens_that_the_model_forbids_are_never_drawn() -> None:
    logits = torch.full((300,), -math.inf)
    logits[[17, 280]] = 1.0
    counts = draw_many(logits, 400)
    assert counts[17] + counts[280] == 400
    assert min(counts[17], counts[280]) > 150


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 - 1, -(2**63), 2**64])
def test_a_seed_may_be_any_whole_number(seed: int) -> None:
    rows = [RowParams(params(seed=seed), 0, position) for position in range(8)]
    first, second = (sample(LOGITS.expand(8, -1), rows) for _ in range(2))
    assert first == second


def test_minus_one_and_its_unsigned_twin_are_different_seeds() -> None:
    assert uniform(-1, 0, 0) != uniform(2**64 - 1, 0, 0)


@pytest.mark.parametrize("changed", [{"seed": 6}, {"choice": 1}, {"position": 1}])
def test_seed_choice_and_position_each_change_the_draw(changed: dict[str, int]) -> None:
    base = {"seed": 5, "choice": 0, "position": 0}
    assert uniform(**base) != uniform(**{**base, **changed})


def test_a_draw_is_the_same_alone_and_in_any_crowd() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(24, 3000, generator=generator) * 3
    kinds: list[dict[str, Any]] = [
        {},
        {"top_p": 0.9},
        {"top_k": 40},
        {"temperature": 0.0},
        {"min_p": 0.05},
        {"top_p": 0.999},
    ]
    rows = [RowParams(params(seed=i, **kinds[i % len(kinds)]), i % 3, i) for i in range(24)]
    alone = [sample(logits[i : i + 1], [rows[i]])[0] for i in range(24)]
    assert sample(logits, rows) == alone
    assert sample(logits.flip(0), rows[::-1]) == alone[::-1]
    assert sample(logits[5:13].contiguous(), rows[5:13]) == alone[5:13]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_fails_alone(value: float, temperature: float) -> None:
    logits = LOGITS.repeat(3, 1)
    logits[1, 4] = value
    drawn = sample(logits, [RowParams(params(temperature=temperature), 0, i) for i in range(3)])
    assert isinstance(drawn[1], SamplingFailed)
    assert str(drawn[1]) == "the model's logits are not finite"
    assert len(ids_of(drawn)) == 2


def test_a_row_without_any_possible_token_fails() -> None:
    (drawn,) = sample(torch.full((1, 8), -math.inf), [RowParams(params(), 0, 0)])
    assert isinstance(drawn, SamplingFailed)


def test_parameters_that_raise_spoil_only_their_own_row() -> None:
    rows = [RowParams(params(seed=i), 0, 0) for i in range(3)]
    clean = sample(LOGITS.repeat(3, 1), rows)
    rows[1] = RowParams(params(min_p="high"), 0, 0)
    drawn = sample(LOGITS.repeat(3, 1), rows)
    assert isinstance(drawn[1], SamplingFailed)
    assert [drawn[0], drawn[2]] == [clean[0], clean[2]]


def test_no_rows_give_no_tokens() -> None:
    assert sample(torch.empty(0, 8), []) == []


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
def test_penalties_and_biases_shift_the_distribution_as_their_definition_says(changes: dict[str, Any]) -> None:
    counts = draw_many(LOGITS, adjustment=adjustment(**changes), **changes)
    statistic, freedom = chi_square(counts, exact_probabilities(adjusted_logits(**changes), params(**changes)))
    assert statistic <= freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("changes", ADJUSTED)
def test_a_greedy_choice_heeds_penalties_and_biases(changes: dict[str, Any]) -> None:
    greedy = {**changes, "temperature": 0.0}
    assert draw_many(LOGITS, 3, adjustment(**greedy), **greedy)[adjusted_logits(**greedy).argmax()] == 3


def test_a_bias_of_a_hundred_forces_a_token() -> None:
    assert draw_many(LOGITS, 200, adjustment(logit_bias=((5, 100.0),)))[5] == 200


def test_end_tokens_are_not_drawn_before_min_tokens() -> None:
    found = adjustment(min_tokens=3)
    rows = [RowParams(found.sampling, 0, position, found) for position in range(60)]
    drawn = ids_of(sample(LOGITS.expand(60, -1), rows))
    assert 2 not in drawn[:3]
    assert 2 in drawn[3:]


def test_only_what_asks_for_a_change_is_changed() -> None:
    assert not Adjustment.is_wanted(params(stop=("x",), stop_token_ids=(3,), ignore_eos=True))
    for changes in [*ADJUSTED, {"min_tokens": 1}]:
        assert Adjustment.is_wanted(params(**changes))
    logits = LOGITS.repeat(3, 1)
    found = adjustment(logit_bias=((5, 100.0),))
    rows = [RowParams(params(seed=i), 0, 0, found if i == 1 else None) for i in range(3)]
    drawn = ids_of(sample(logits, rows))
    assert drawn[1] == 5
    assert [drawn[0], drawn[2]] == [ids_of(sample(LOGITS[None], [rows[i]]))[0] for i in (0, 2)]
    assert torch.equal(logits, LOGITS.repeat(3, 1))  # the model's logits are left alone


def test_a_bias_outside_the_vocabulary_fails_its_own_row_and_touches_no_other() -> None:
    rows = [RowParams(params(seed=i), 0, 0) for i in range(3)]
    clean = sample(LOGITS.repeat(3, 1), rows)
    rows[1] = RowParams(params(), 0, 0, adjustment(logit_bias=((40, 100.0),)))
    drawn = sample(LOGITS.repeat(3, 1), rows)
    assert isinstance(drawn[1], SamplingFailed)
    assert "outside 0 to 31" in str(drawn[1])
    assert [drawn[0], drawn[2]] == [clean[0], clean[2]]


def test_a_row_in_which_everything_is_banned_fails() -> None:
    found = Adjustment(params(min_tokens=1), (), frozenset(range(len(LOGITS))))
    (drawn,) = sample(LOGITS[None], [RowParams(found.sampling, 0, 0, found)])
    assert isinstance(drawn, SamplingFailed)


@pytest.mark.parametrize("num_top", [0, 1, 3, 8])
@pytest.mark.parametrize("changes", [{}, {"temperature": 0.0}, {"temperature": 0.3, "top_k": 2}, {"top_p": 0.2}])
def test_logprobs_are_those_of_the_model_whatever_is_drawn_and_how(num_top: int, changes: dict[str, Any]) -> None:
    found = adjustment(logit_bias=((1, 5.0),), presence_penalty=1.0)
    (drawn,) = sample(LOGITS[None], [RowParams(params(logprobs=num_top, **changes), 0, 0, found)])
    expected = LOGITS.double().log_softmax(0)
    assert isinstance(drawn, Draw)
    assert drawn.logprobs is not None
    assert drawn.logprobs.chosen == pytest.approx(expected[drawn.token_id].item(), abs=1e-6)
    assert [token_id for token_id, _ in drawn.logprobs.top] == expected.argsort(descending=True)[:num_top].tolist()
    assert [value for _, value in drawn.logprobs.top] == pytest.approx(
        expected.sort(descending=True).values[:num_top].tolist(), abs=1e-6
    )


def test_equal_logprobs_are_listed_by_id_and_rows_without_the_wish_have_none() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    drawn = sample(logits, [RowParams(params(logprobs=3), 0, 0), RowParams(params(), 0, 0)])
    assert isinstance(drawn[0], Draw)
    assert drawn[0].logprobs is not None
    assert [token_id for token_id, _ in drawn[0].logprobs.top] == [1, 2, 3]
    assert isinstance(drawn[1], Draw)
    assert drawn[1].logprobs is None


@pytest.mark.parametrize("vocab_size", [50257, 151936])
def test_a_large_vocabulary_gives_each_row_the_same_in_any_crowd(vocab_size: int) -> None:
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
    alone = [sample(logits[i : i + 1], [rows[i]])[0] for i in range(12)]
    assert sample(logits, rows) == alone
    assert sample(logits[3:9], rows[3:9]) == alone[3:9]


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_a_cut_far_beyond_the_candidates_is_where_a_sort_would_put_it(top_p: float, spread: float) -> None:
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(4)) * spread
    weights = (logits - logits.max()).exp()
    order = weights.double().sort(descending=True).values
    num_kept = int((order.cumsum(0) - order < top_p * order.sum()).sum())
    assert wide_cutoff(weights, params(top_p=top_p)).item() == pytest.approx(order[num_kept - 1].item(), rel=1e-6)
    assert wide_cutoff(weights, params(top_k=300)).item() == order[299].item()
