"""Instructions for pairs of bf16, bit for bit as the processor's manual defines their sums."""

from collections.abc import Callable

import pytest
import torch

from tests.worker.kernels.emulated import rounds_rows
from tests.worker.kernels.native import ISA_NAMES, kernels_of
from worker.kernels.cpu.linear import PackedLinear
from worker.kernels.cpu.structures import BF16

DOT_NAMES = [name for name in ISA_NAMES if rounds_rows(name)]


def padded(matrix: torch.Tensor) -> torch.Tensor:
    """With zeros up to a multiple of 32 columns."""
    return torch.nn.functional.pad(matrix, (0, -matrix.shape[1] % 32))


def product(x: torch.Tensor, weight: torch.Tensor, k: int) -> torch.Tensor:
    return x[:, k, None] * weight[None, :, k]  # exact: both are bf16


def summed_in_turn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """VDPBF16PS: of each pair the second first."""
    total = torch.zeros(len(x), len(weight))
    for k in range(0, x.shape[1], 2):
        total = total + product(x, weight, k + 1) + product(x, weight, k)
    return total


def summed_in_tiles(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """TDPBF16PS: 32 k at a time, even and odd ones apart."""
    total = torch.zeros(len(x), len(weight))
    for start in range(0, x.shape[1], 32):
        even, odd = torch.zeros_like(total), torch.zeros_like(total)
        for k in range(start, start + 32, 2):
            even, odd = even + product(x, weight, k), odd + product(x, weight, k + 1)
        total = total + (even + odd)
    return total


SUMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "avx512bf16": summed_in_turn,
    "amx": summed_in_tiles,
}


@pytest.mark.parametrize("isa", DOT_NAMES)
@pytest.mark.parametrize(("out_size", "in_size"), [(1, 1), (33, 64), (75, 70), (130, 224)])
def test_given_any_shape_then_the_sums_have_the_bits_of_the_manual(isa: str, out_size: int, in_size: int) -> None:
    torch.manual_seed(in_size)
    weight = torch.randn(out_size, in_size).bfloat16()
    linear = PackedLinear(kernels_of(isa), weight, None, BF16)
    for rows in (1, 4, 16, 17, 32, 33, 50):
        x = torch.randn(rows, in_size)
        expected = SUMS[isa.removesuffix("-emulated")](padded(x.bfloat16().float()), padded(weight.float()))
        assert torch.equal(linear(x), expected)


@pytest.mark.parametrize("isa", DOT_NAMES)
def test_given_denormals_then_they_count_as_zero_and_ties_round_to_even(isa: str) -> None:
    rows = torch.tensor([1e-39, 1e-20, 1.0, 1 + 2**-8, 1 + 3 * 2**-8])
    columns = torch.tensor([2.0**-66, 1e-39, 2.0**-100])
    linear = PackedLinear(kernels_of(isa), columns[:, None], None, BF16)
    above = 1 + 2**-6
    assert linear(rows[:, None]).tolist() == [
        [0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0],  # the products are below the smallest normal number
        [2.0**-66, 0.0, 2.0**-100],
        [2.0**-66, 0.0, 2.0**-100],
        [above * 2.0**-66, 0.0, above * 2.0**-100],
    ]


def test_given_both_instruction_sets_then_they_agree_but_for_the_order_of_their_sums() -> None:
    torch.manual_seed(2)
    weight, x = torch.randn(64, 256).bfloat16(), torch.randn(20, 256)
    found = [PackedLinear(kernels_of(isa), weight, None, BF16)(x) for isa in DOT_NAMES]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], atol=1e-4, rtol=1e-4)
