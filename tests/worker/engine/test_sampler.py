"""The sampler: exact distributions, draws that depend on seed, choice and position alone, and rows that fail alone."""

import math
from typing import Any

import pytest
import torch

from tests.worker.engine.draws import LOGITS, Draws, chi_square, exact_probabilities, ids_of, params
from worker.engine.draw import Draw, RowParams, SamplingFailed, uniform
from worker.engine.filters import wide_cutoff


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
def test_tokens_are_drawn_as_often_as_their_probability_says(draws: Draws, changes: dict[str, Any]) -> None:
    counts = draws.many(LOGITS, **changes)
    statistic, freedom = chi_square(counts, exact_probabilities(LOGITS.clone(), params(**changes)))
    # Four standard deviations of the chi-square distribution: the draws are the same in every run.
    assert statistic <= freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("changes", [{}, {"top_p": 0.95}, {"top_k": 700}, {"top_k": 20}, {"min_p": 0.01}])
def test_large_vocabularies_are_drawn_from_exactly(draws: Draws, changes: dict[str, Any]) -> None:
    """Flat logits: top_p and top_k keep more tokens than the candidates that are looked at first."""
    logits = torch.randn(2000, generator=torch.Generator().manual_seed(3)) * 0.5
    counts = draws.many(logits, 3000, **changes)
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
def test_no_or_next_to_no_temperature_is_greedy(draws: Draws, changes: dict[str, Any]) -> None:
    assert draws.many(LOGITS * 1e4, 50, **changes)[2] == 50


def test_the_lowest_temperatures_above_that_do_not_overflow(draws: Draws) -> None:
    assert draws.many(LOGITS * 1e4, 50, temperature=1e-5)[2] == 50


def test_equal_logits_at_the_cut_stay_together(draws: Draws) -> None:
    counts = draws.many(torch.tensor([2.0, 2.0, 2.0, 0.0]), 600, top_k=2)
    assert counts[3] == 0
    assert counts[:3].min() > 0


def test_tokens_that_the_model_forbids_are_never_drawn(draws: Draws) -> None:
    logits = torch.full((300,), -math.inf)
    logits[[17, 280]] = 1.0
    counts = draws.many(logits, 400)
    assert counts[17] + counts[280] == 400
    assert min(counts[17], counts[280]) > 150


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 - 1, -(2**63), 2**64])
def test_a_seed_may_be_any_whole_number(draws: Draws, seed: int) -> None:
    rows = [RowParams(params(seed=seed), 0, position) for position in range(8)]
    first, second = (draws.sample(LOGITS.expand(8, -1), rows) for _ in range(2))
    assert first == second


def test_minus_one_and_its_unsigned_twin_are_different_seeds() -> None:
    assert uniform(-1, 0, 0) != uniform(2**64 - 1, 0, 0)


@pytest.mark.parametrize("changed", [{"seed": 6}, {"choice": 1}, {"position": 1}])
def test_seed_choice_and_position_each_change_the_draw(changed: dict[str, int]) -> None:
    base = {"seed": 5, "choice": 0, "position": 0}
    assert uniform(**base) != uniform(**{**base, **changed})


def test_a_draw_is_the_same_alone_and_in_any_crowd(draws: Draws) -> None:
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
    alone = [draws.sample(logits[i : i + 1], [rows[i]])[0] for i in range(24)]
    assert draws.sample(logits, rows) == alone
    assert draws.sample(logits.flip(0), rows[::-1]) == alone[::-1]
    assert draws.sample(logits[5:13].contiguous(), rows[5:13]) == alone[5:13]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_finite_fails_alone(draws: Draws, value: float, temperature: float) -> None:
    logits = LOGITS.repeat(3, 1)
    logits[1, 4] = value
    drawn = draws.sample(logits, [RowParams(params(temperature=temperature), 0, i) for i in range(3)])
    assert isinstance(drawn[1], SamplingFailed)
    assert str(drawn[1]) == "the model's logits are not finite"
    assert len(ids_of(drawn)) == 2


def test_a_row_without_any_possible_token_fails(draws: Draws) -> None:
    (drawn,) = draws.sample(torch.full((1, 8), -math.inf), [RowParams(params(), 0, 0)])
    assert isinstance(drawn, SamplingFailed)


def test_parameters_that_raise_spoil_only_their_own_row(draws: Draws) -> None:
    rows = [RowParams(params(seed=i), 0, 0) for i in range(3)]
    clean = draws.sample(LOGITS.repeat(3, 1), rows)
    rows[1] = RowParams(params(min_p="high"), 0, 0)
    drawn = draws.sample(LOGITS.repeat(3, 1), rows)
    assert isinstance(drawn[1], SamplingFailed)
    assert [drawn[0], drawn[2]] == [clean[0], clean[2]]


def test_no_rows_give_no_tokens(draws: Draws) -> None:
    assert draws.sample(torch.empty(0, 8), []) == []


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_a_cut_far_beyond_the_candidates_is_where_a_sort_would_put_it(top_p: float, spread: float) -> None:
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(4)) * spread
    weights = (logits - logits.max()).exp()
    order = weights.double().sort(descending=True).values
    num_kept = int((order.cumsum(0) - order < top_p * order.sum()).sum())
    assert wide_cutoff(weights, params(top_p=top_p)).item() == pytest.approx(order[num_kept - 1].item(), rel=1e-6)
    assert wide_cutoff(weights, params(top_k=300)).item() == order[299].item()


def mask_of(allowed: list[int], vocab_size: int) -> torch.Tensor:
    words = [sum(1 << (id % 32) for id in allowed if id // 32 == word) for word in range(-(-vocab_size // 32))]
    return torch.tensor(words, dtype=torch.int64).to(torch.int32)


@pytest.mark.parametrize("changes", [{}, {"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.3}, {"temperature": 0.0}])
def test_only_what_the_mask_allows_is_drawn_and_as_if_nothing_else_were(draws: Draws, changes: dict[str, Any]) -> None:
    logits = torch.randn(100, generator=torch.Generator().manual_seed(6))
    allowed = [0, 7, 31, 32, 64, 95, 96, 99]
    rows = [RowParams(params(**changes), 0, i, allowed=mask_of(allowed, 100)) for i in range(2000)]
    counts = torch.bincount(torch.tensor(ids_of(draws.sample(logits.expand(2000, -1), rows))), minlength=100)
    left = torch.full((100,), -math.inf)
    left[allowed] = logits[allowed]
    if changes.get("temperature") == 0.0:
        assert counts[left.argmax()] == 2000
    else:
        statistic, freedom = chi_square(counts, exact_probabilities(left, params(**changes)))
        assert statistic <= freedom + 4 * math.sqrt(2 * freedom)


def test_a_mask_is_for_its_own_row_and_logprobs_do_not_know_it(draws: Draws) -> None:
    rows = [RowParams(params(logprobs=2, seed=i), 0, 0, allowed=mask_of([5], 8) if i == 1 else None) for i in range(3)]
    alone = [draws.sample(LOGITS[None], [RowParams(row.sampling, 0, 0)])[0] for row in rows]
    drawn = draws.sample(LOGITS.repeat(3, 1), rows)
    assert [drawn[0], drawn[2]] == [alone[0], alone[2]]
    assert isinstance(drawn[1], Draw)
    assert isinstance(alone[1], Draw)
    assert drawn[1].token_id == 5
    assert drawn[1].logprobs is not None
    assert alone[1].logprobs is not None
    assert drawn[1].logprobs.top == alone[1].logprobs.top
    assert drawn[1].logprobs.chosen == pytest.approx(LOGITS.double().log_softmax(0)[5].item(), abs=1e-6)


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        (mask_of([], 8), "the model, the bans and the mask leave no token to draw"),
        (mask_of([1], 64), "ValueError: a mask of 8 tokens is int32 [1], not torch.int32 [2]"),
        (mask_of([1], 8).float(), "ValueError: a mask of 8 tokens is int32 [1], not torch.float32 [1]"),
        (mask_of([1], 8)[None], "ValueError: a mask of 8 tokens is int32 [1], not torch.int32 [1, 1]"),
    ],
)
def test_a_mask_that_allows_nothing_or_does_not_fit_fails_its_row_alone(
    draws: Draws, mask: torch.Tensor, reason: str
) -> None:
    rows = [RowParams(params(), 0, 0), RowParams(params(), 0, 0, allowed=mask)]
    fine, failed = draws.sample(LOGITS.repeat(2, 1), rows)
    assert isinstance(fine, Draw)
    assert str(failed) == reason
