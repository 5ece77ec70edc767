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
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, options: AttentionOptions
) -> torch.Tensor:
    """[N, heads, value size] in float64 of the last tokens of a sequence, those from place `start` on.

    `query` is [N, heads, size], `keys` [L, kv heads, size].
    """
    keys, values, query = (tensor.double() for tensor in (keys, values, query))
    num_tokens, _, size = query.shape
    grouped = query.view(num_tokens, keys.shape[1], -1, size)
    scaling = size**-0.5 if options.scaling is None else options.scaling
    scores = torch.einsum("nkgd,lkd->nkgl", grouped, keys).flatten(1, 2) * scaling
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    places, slots = torch.arange(start, start + num_tokens)[:, None], torch.arange(len(keys))
    is_seen = (slots <= places) & (slots > places - (options.sliding_window or len(keys)))
    scores = scores.masked_fill(~is_seen[:, None], -torch.inf)
    if options.sinks is not None:
        scores = torch.cat([scores, options.sinks.double()[None, :, None].expand(num_tokens, -1, 1)], dim=2)
    weights = scores.softmax(dim=2)[..., : len(keys)].view(num_tokens, keys.shape[1], -1, len(keys))
    return torch.einsum("nkgl,lkd->nkgd", weights, values).flatten(1, 2)


def offsets_of(spans: list[tuple[int, int]]) -> list[int]:
    return list(accumulate((stop - start for start, stop in spans), initial=0))
