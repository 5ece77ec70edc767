"""Sampling by the kernels against plain torch, over random rows and parameters, between poisoned memory."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.worker.kernels.native import ISA_NAMES, NATIVE_NAMES, guarded_copy, kernels_of
from worker.engine.adjustments import Adjustment
from worker.engine.draw import Draw, RowParams, SamplingFailed
from worker.engine.sampler import sample
from worker.protocol.job import SamplingParams

VOCAB_SIZES = (1, 2, 31, 63, 64, 65, 1000)
LARGE_SIZES = (4099, 49152)  # an emulation takes too long over them
CASES = [(isa, size) for isa in ISA_NAMES for size in (*VOCAB_SIZES, *(LARGE_SIZES if isa in NATIVE_NAMES else ()))]
NUM_ROWS = 24


def random_row(dice: random.Random, vocab_size: int) -> RowParams:
    """Every parameter is off about half of the time."""

    def maybe(draw: Callable[[], Any], off: Any) -> Any:
        return draw() if dice.random() < 0.5 else off

    sampling = SamplingParams(
        max_tokens=99,
        seed=dice.randrange(2**32),
        temperature=dice.choice([0.0, 0.2, 0.7, 1.0, 1.0, 1.8, 20.0]),
        top_p=maybe(lambda: dice.choice([1e-6, 0.1, 0.5, 0.9, 0.99, 1 - 1e-9]), 1.0),
        top_k=maybe(lambda: dice.randrange(1, 2 * vocab_size + 2), 0),
        min_p=maybe(lambda: dice.choice([1e-5, 0.02, 0.4, 1.0]), 0.0),
        presence_penalty=maybe(lambda: dice.uniform(-2, 2), 0.0),
        frequency_penalty=maybe(lambda: dice.uniform(-2, 2), 0.0),
        repetition_penalty=maybe(lambda: dice.uniform(0.5, 2), 1.0),
        logit_bias=maybe(lambda: ((dice.randrange(vocab_size), dice.uniform(-5, 5)),), ()),
        min_tokens=maybe(lambda: 3, 0),
        logprobs=maybe(lambda: dice.choice([0, 1, 5, 20]), None),
    )
    adjustment = Adjustment(sampling, [dice.randrange(vocab_size) for _ in range(9)], {0, 10**7})
    for _ in range(300):  # more than the history makes room for at first
        adjustment.add(dice.randrange(vocab_size))
    allowed = torch.tensor([dice.randrange(-(2**31), 2**31) | 2 for _ in range(-(-vocab_size // 32))]).int()
    return RowParams(
        sampling, dice.randrange(3), dice.randrange(6), maybe(lambda: adjustment, None), maybe(lambda: allowed, None)
    )


@pytest.mark.parametrize(("isa", "vocab_size"), CASES)
@pytest.mark.parametrize("spread", [0.2, 3.0, 40.0])
def test_given_any_parameters_then_the_token_is_the_one_that_torch_draws(
    isa: str, vocab_size: int, spread: float
) -> None:
    dice = random.Random(f"{vocab_size} {spread}")
    torch.manual_seed(vocab_size)
    logits = guarded_copy(torch.randn(NUM_ROWS, vocab_size) * spread)
    before = logits.clone()
    rows = [random_row(dice, vocab_size) for _ in range(NUM_ROWS)]
    found = sample(logits, rows, kernels_of(isa))
    assert torch.equal(logits, before)
    for ours, reference in zip(found, sample(logits, rows), strict=True):
        assert_same(ours, reference, vocab_size)
    assert sample(logits, rows, kernels_of(isa, 3)) == found or any(isinstance(one, SamplingFailed) for one in found)
    for i in range(0, NUM_ROWS, 5):
        assert repr(sample(logits[i : i + 1], rows[i : i + 1], kernels_of(isa))[0]) == repr(found[i])


def assert_same(ours: Draw | SamplingFailed, reference: Draw | SamplingFailed, vocab_size: int) -> None:
    assert type(ours) is type(reference)
    assert isinstance(reference, Draw) or str(ours) == str(reference)
    if isinstance(ours, Draw) and isinstance(reference, Draw):
        assert ours.token_id == reference.token_id
        assert (ours.logprobs is None) == (reference.logprobs is None)
        if ours.logprobs is not None and reference.logprobs is not None:
            assert ours.logprobs.chosen == pytest.approx(reference.logprobs.chosen, rel=1e-6, abs=2e-6)
            told = reference.logprobs.top[:vocab_size]
            assert [id for id, _ in ours.logprobs.top] == [id for id, _ in told]
            assert [value for _, value in ours.logprobs.top] == pytest.approx(
                [value for _, value in told], rel=1e-6, abs=2e-6
            )


@pytest.mark.parametrize("isa", ISA_NAMES)
@pytest.mark.parametrize("place", [0, 63, 64, 99, 129])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_given_a_number_that_is_none_anywhere_then_the_row_fails_alone(isa: str, place: int, value: float) -> None:
    logits = torch.randn(3, 130, generator=torch.Generator().manual_seed(1))
    logits[1, place] = value
    rows = [RowParams(SamplingParams(max_tokens=1, seed=i, logprobs=3), 0, 0) for i in range(3)]
    fine, failed, also_fine = sample(logits, rows, kernels_of(isa))
    assert str(failed) == "the model's logits are not finite"
    assert isinstance(fine, Draw)
    assert isinstance(also_fine, Draw)


@pytest.mark.parametrize("isa", ISA_NAMES)
def test_given_equal_logits_then_the_first_is_the_likeliest_and_all_are_told_in_order(isa: str) -> None:
    rows = [RowParams(SamplingParams(max_tokens=1, seed=0, temperature=0.0, logprobs=20), 0, 0)]
    (drawn,) = sample(torch.zeros(1, 200), rows, kernels_of(isa))
    assert isinstance(drawn, Draw)
    assert drawn.logprobs is not None
    assert (drawn.token_id, [id for id, _ in drawn.logprobs.top]) == (0, list(range(20)))


@pytest.mark.parametrize("isa", ISA_NAMES)
def test_given_tokens_that_the_model_rules_out_then_only_the_others_are_told(isa: str) -> None:
    logits = torch.full((1, 100), -torch.inf)
    logits[0, [70, 3]] = torch.tensor([1.0, 2.0])
    rows = [RowParams(SamplingParams(max_tokens=1, seed=0, top_p=0.1, logprobs=5), 0, 0)]
    (drawn,) = sample(logits, rows, kernels_of(isa))
    assert isinstance(drawn, Draw)
    assert drawn.logprobs is not None
    assert (drawn.token_id, [id for id, _ in drawn.logprobs.top]) == (3, [3, 70])
