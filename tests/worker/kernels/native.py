"""What the tests of the CPU kernels share: kernels of every instruction set, guarded memory, attention by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import accumulate

import torch

from tests.worker.kernels.emulated import emulated_isas
from worker.engine.ragged_batch import RaggedRow, build_batch
from worker.kernels.cpu.build import library_file
from worker.kernels.cpu.isa import available_isas
from worker.kernels.cpu.library import Kernels, NativeBatch, native_batch
from worker.kernels.interface import AttentionOptions

CPU = torch.device("cpu")
NATIVE_NAMES = [isa.name for isa in available_isas()]
ISAS = {isa.name: isa for isa in (*available_isas(), *emulated_isas())}
ISA_NAMES = list(ISAS)
GUARD = 64  # floats before and after a guarded tensor


@cache
def kernels_of(isa: str, num_threads: int = 2) -> Kernels:
    return Kernels(library_file(ISAS[isa]), isa, num_threads)


class Guarded:
    """A tensor with NaN on both sides, which nobody may overwrite."""

    def __init__(self, *shape: int, fill: float = float("nan")) -> None:
        size = torch.Size(shape).numel()
        self._memory = torch.full((size + 2 * GUARD,), float("nan"))
        self.tensor = self._memory[GUARD : GUARD + size].view(shape)
        self.tensor.fill_(fill)

    def check(self) -> None:
        assert self._memory[:GUARD].isnan().all()
        assert self._memory[-GUARD:].isnan().all()


@contextmanager
def guarded(*shapes: tuple[int, ...]) -> Iterator[list[torch.Tensor]]:
    """Tensors of these shapes, full of NaN, whose surroundings must be untouched in the end."""
    memories = [Guarded(*shape) for shape in shapes]
    yield [memory.tensor for memory in memories]
    for memory in memories:
        memory.check()


def guarded_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in the middle of NaN: reading past its ends shows."""
    copy = Guarded(*tensor.shape).tensor
    copy.copy_(tensor)
    return copy


def batch_of(spans: list[tuple[int, int]], pages: list[list[int]], page_size: int) -> NativeBatch:
    """The batch that computes places [start, stop) of each sequence."""
    rows = [RaggedRow([0] * (stop - start), start, own) for (start, stop), own in zip(spans, pages, strict=True)]
    return native_batch(build_batch(rows, page_size, CPU))


def exact_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """[heads, value size] in float64 of the last token; `query` is [heads, size], `keys` [L, kv heads, size]."""
    window = options.sliding_window or len(keys)
    keys, values, query = (tensor.double() for tensor in (keys[-window:], values[-window:], query))
    group = query.shape[0] // keys.shape[1]
    scaling = query.shape[1] ** -0.5 if options.scaling is None else options.scaling
    scores = torch.einsum("hd,lhd->hl", query, keys.repeat_interleave(group, dim=1)) * scaling
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    if options.sinks is not None:
        scores = torch.cat([scores, options.sinks.double()[:, None]], dim=1)
    weights = scores.softmax(dim=1)[:, : len(keys)]
    return torch.einsum("hl,lhd->hd", weights, values.repeat_interleave(group, dim=1))


def offsets_of(spans: list[tuple[int, int]]) -> list[int]:
    return list(accumulate((stop - start for start, stop in spans), initial=0))
