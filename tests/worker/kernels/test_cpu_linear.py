"""Packed linear layers against float64, in every weight format, between poisoned memory."""

import random
from ctypes import byref

import pytest
import torch

from tests.worker.kernels.emulated import rounds_rows
from tests.worker.kernels.native import ISA_NAMES, guarded, guarded_copy, kernels_of
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.linear import PackedLinear
from worker.kernels.cpu.structures import BF16, F32, INT4, INT8

FORMATS = {"float32": F32, "bfloat16": BF16, "int8": INT8, "int4": INT4}
WEIGHT_ERRORS = {F32: 1e-6, BF16: 1e-6, INT8: 0.01, INT4: 0.12}  # of the weights, relative
GROUPS = {"int8": 64, "int4": 32}  # numbers of a row that share a scale
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 24, 32, 97)


def apply(linear: PackedLinear, kernels: Kernels, x: torch.Tensor) -> torch.Tensor:
    """As PackedLinear's call does, into guarded memory."""
    with guarded((len(x), linear.out_size)) as (y,):
        kernels.library.hr_linear_forward(
            kernels.crew, byref(linear.structure), x.data_ptr(), x.stride(0), len(x), y.data_ptr(), y.stride(0)
        )
    return y


def factors_of(x: torch.Tensor, name: str, isa: str) -> torch.Tensor:
    """What the kernels multiply with weights of this format instead of `x`."""
    if name == "bfloat16" and rounds_rows(isa):
        return x.bfloat16().double()
    if name not in GROUPS:
        return x.double()
    groups = torch.nn.functional.pad(x, (0, -x.shape[1] % GROUPS[name]))
    groups = groups.double().view(len(x), -1, GROUPS[name])
    scales = torch.exp2(torch.frexp(groups.abs().amax(2, keepdim=True)).exponent - 15.0)
    integers = (groups / scales).round().clamp(-32767, 32767)
    return (integers * scales).flatten(1)[:, : x.shape[1]]


@pytest.mark.parametrize("isa", ISA_NAMES)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("out_size", "in_size"), [(1, 32), (16, 32), (33, 96), (100, 64), (257, 200)])
def test_given_any_shape_then_rows_are_exact_and_alone_what_they_are_together(
    isa: str, name: str, out_size: int, in_size: int
) -> None:
    torch.manual_seed(out_size)
    kernels = kernels_of(isa)
    weight, bias = torch.randn(out_size, in_size).bfloat16(), torch.randn(out_size)
    linear = PackedLinear(kernels, weight, bias, FORMATS[name])
    plain = PackedLinear(kernels, weight, None, FORMATS[name])
    # What the panels hold, read off by multiplying with one-hot rows; so the sums are tested apart from the rounding.
    stored = apply(plain, kernels, torch.eye(in_size)).T.double()
    assert (stored - weight.double()).norm() <= WEIGHT_ERRORS[FORMATS[name]] * weight.double().norm()
    for rows in ROWS:
        x = guarded_copy(torch.randn(rows, in_size))
        y = apply(linear, kernels, x)
        expected = factors_of(x, name, isa) @ stored.T + bias.double()
        torch.testing.assert_close(y.double(), expected, rtol=2e-5, atol=2e-5)
        for row in range(rows):
            assert torch.equal(apply(linear, kernels, x[row : row + 1])[0], y[row])


@pytest.mark.parametrize("isa", ISA_NAMES)
@pytest.mark.parametrize("name", FORMATS)
def test_given_other_numbers_of_threads_then_the_bits_are_the_same(isa: str, name: str) -> None:
    torch.manual_seed(3)
    weight, x = torch.randn(500, 64), torch.randn(50, 64)
    results = []
    for num_threads in (1, 2, 5):
        kernels = kernels_of(isa, num_threads)
        results.append(apply(PackedLinear(kernels, weight, None, FORMATS[name]), kernels, x))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("isa", ISA_NAMES)
def test_given_any_size_of_input_then_float_formats_are_exact(isa: str) -> None:
    dice = random.Random(5)
    kernels = kernels_of(isa)
    for _ in range(20):
        in_size, out_size, rows = dice.randint(1, 70), dice.randint(1, 70), dice.randint(1, 20)
        weight, x = torch.randn(out_size, in_size), guarded_copy(torch.randn(rows, in_size))
        y = apply(PackedLinear(kernels, weight, None, F32), kernels, x)
        torch.testing.assert_close(y.double(), x.double() @ weight.double().T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("isa", ISA_NAMES)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("number", [torch.nan, -torch.nan, torch.inf])
def test_given_a_row_of_no_numbers_then_its_neighbours_are_untouched(isa: str, name: str, number: float) -> None:
    torch.manual_seed(7)
    kernels = kernels_of(isa)
    weight, x = torch.randn(40, 70), torch.randn(9, 70)
    linear = PackedLinear(kernels, weight, None, FORMATS[name])
    expected = linear(x)
    x[4, 69] = number
    y = linear(x)
    assert not y[4].isfinite().any()
    assert torch.equal(y[[0, 1, 2, 3, 5, 6, 7, 8]], expected[[0, 1, 2, 3, 5, 6, 7, 8]])


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_given_quantized_weights_then_every_instruction_set_gives_the_same_bits(name: str) -> None:
    torch.manual_seed(8)
    weight, x = torch.randn(75, 200), torch.randn(20, 200)
    found = [PackedLinear(kernels_of(isa), weight, None, FORMATS[name])(x) for isa in ISA_NAMES]
    assert all(torch.equal(other, found[0]) for other in found)


@pytest.mark.parametrize("isa", ISA_NAMES)
def test_given_quantized_weights_then_rows_of_any_size_are_as_exact_and_the_largest_sums_fit(isa: str) -> None:
    torch.manual_seed(9)
    linear = PackedLinear(kernels_of(isa), torch.randn(40, 96), None, INT8)
    x = torch.randn(7, 96)
    for factor in (2.0**100, 2.0**-80):
        assert torch.equal(linear(x * factor), linear(x) * factor)
    assert torch.equal(linear(torch.full((1, 96), 1e-45)), torch.zeros(1, 40))
    largest = PackedLinear(kernels_of(isa), torch.full((40, 128), 127.0), None, INT8)
    assert torch.equal(largest(torch.full((1, 128), 32767.0)), torch.full((1, 40), 32767.0 * 127 * 128))
