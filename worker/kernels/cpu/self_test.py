"""The built-in test of a compiled library: `python -m worker.kernels.cpu.self_test LIBRARY`.

A process of its own, since a library may do anything on a processor that its instruction set has never met. It
answers with exit code 0, or with 1 and the reason as the last line of its output.
"""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from worker.engine.ragged_batch import RaggedRow, build_batch
from worker.kernels.cpu.attention import NativeAttention
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.linear import PackedLinear
from worker.kernels.cpu.structures import BF16, F32, INT4, INT8
from worker.kernels.interface import AttentionKernel, AttentionOptions, LayerLayout
from worker.kernels.reference import ReferenceAttention

CPU = torch.device("cpu")
ROWS = (1, 2, 5, 16, 33, 70)
PAGE_SIZE = 32
OPTIONS = (AttentionOptions(), AttentionOptions(sliding_window=40, softcap=5.0))
HEADS, KV_HEADS, HEAD_SIZE = 6, 2, 64


class Wrong(Exception):
    """What the kernels computed is not what it should be; the message says where."""


def check_linears(kernels: Kernels) -> None:
    """Whole numbers so small that every format holds them and every order of summing is exact."""
    for name, weight_format, low, high in (
        ("float32", F32, -8, 9),
        ("bfloat16", BF16, -8, 9),
        ("int8", INT8, -127, 128),
        ("int4", INT4, 0, 16),
    ):
        weight = torch.randint(low, high, (75, 96)).float()
        weight[:, ::32], weight[:, 1::32] = low, high - 1  # so that a group's scale is one
        linear = PackedLinear(kernels, weight, torch.arange(75.0), weight_format)
        for rows in ROWS:
            x = torch.randint(-8, 9, (rows, 96)).float()
            if not torch.equal(linear(x), x @ weight.T + torch.arange(75.0)):
                raise Wrong(f"wrong products of {rows} rows with {name} weights")


def check_bits_of_rows(kernels: Kernels) -> None:
    for weight_format in (F32, BF16, INT8, INT4):
        linear = PackedLinear(kernels, torch.randn(75, 96), None, weight_format)
        x = torch.randn(ROWS[-1], 96)
        together = linear(x)
        if any(not torch.equal(linear(x[row : row + 1])[0], together[row]) for row in range(len(x))):
            raise Wrong("a row alone has other bits than among others")


def check_attention(kernels: Kernels) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for options in OPTIONS:
            torch.manual_seed(1)
            found = _attend(NativeAttention(kernels, PAGE_SIZE), dtype, options)
            torch.manual_seed(1)
            # The same numbers, since the pages hold bfloat16 either way; but computed in float32 and another order.
            expected = _attend(ReferenceAttention(PAGE_SIZE, CPU), torch.float32, options)
            if not torch.allclose(found, expected, atol=1e-4, rtol=1e-4):
                raise Wrong(f"wrong attention over {dtype} pages")


def _attend(kernel: AttentionKernel, dtype: torch.dtype, options: AttentionOptions) -> torch.Tensor:
    """Of a prompt, a later chunk and a decoding sequence, over pages that already hold what came before."""
    layer = kernel.new_pages(LayerLayout(KV_HEADS, HEAD_SIZE, HEAD_SIZE, dtype), num_pages=16)
    pages = [[3, 9, 0, 7, 12], [5, 1, 14], [2, 8, 4, 11, 6]]
    outputs = []
    for spans in ([(0, 130), (0, 60), (0, 149)], [(130, 141), (60, 61), (149, 150)]):
        rows = [RaggedRow([0] * (stop - start), start, own) for (start, stop), own in zip(spans, pages, strict=True)]
        plan = kernel.plan(build_batch(rows, PAGE_SIZE, CPU))
        count = sum(stop - start for start, stop in spans)
        keys, values = (torch.randn(count, KV_HEADS, HEAD_SIZE).bfloat16().float() for _ in range(2))
        kernel.write(plan, layer, keys, values)
        outputs.append(kernel.attend(plan, torch.randn(count, HEADS, HEAD_SIZE), layer, options))
    return torch.cat(outputs)


CHECKS: tuple[Callable[[Kernels], None], ...] = (check_linears, check_bits_of_rows, check_attention)


def main(library: Path) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is an answer, nothing to look into
    torch.manual_seed(0)
    try:
        for num_threads in (1, 2):
            kernels = Kernels(library, "", num_threads)
            for check in CHECKS:
                check(kernels)
    except (Wrong, OSError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
