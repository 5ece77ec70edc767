"""Packed linear layers."""

import mmap
from collections.abc import Iterable
from ctypes import byref

import torch

from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.structures import FORMATS, Linear


class PackedLinear:
    """y = x W^T + bias, with W packed into panels in a weight format of the kernels."""

    def __init__(
        self,
        kernels: Kernels,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        weight_format: int,
        panels: torch.Tensor | None = None,
    ) -> None:
        """`weight` is [out, in], float32 or bfloat16, and not needed afterwards.

        `panels`: memory of at least `panel_bytes(...)` aligned to 64 bytes, own memory where absent.
        """
        self._kernels = kernels
        weight = weight.contiguous()
        self.out_size, self.in_size = weight.shape
        size = panel_bytes(kernels, weight_format, self.in_size, self.out_size)
        self.panels = huge_memory(size) if panels is None else panels[:size]
        self.bias = None if bias is None else bias.float().contiguous()
        kernels.library.hr_pack_linear(
            kernels.crew, weight_format, weight.data_ptr(), FORMATS[weight.dtype],
            self.in_size, self.out_size, self.panels.data_ptr(),
        )  # fmt: skip
        bias_pointer = None if self.bias is None else self.bias.data_ptr()
        self.structure = Linear(weight_format, self.in_size, self.out_size, self.panels.data_ptr(), bias_pointer)
        self._reference = byref(self.structure)
        self._compute = kernels.library.hr_linear_forward  # looking it up costs as much as a small call

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[..., out] in float32 from `x` [..., in] in float32."""
        x = x.contiguous()
        y = torch.empty(*x.shape[:-1], self.out_size)
        rows = y.numel() // self.out_size
        self._compute(
            self._kernels.crew, self._reference, x.data_ptr(), self.in_size, rows, y.data_ptr(), self.out_size
        )
        return y

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """[..., in] in float32: rows of the weight matrix, as the panels hold them, for `indices` in int64."""
        indices = indices.contiguous()
        rows = torch.empty(*indices.shape, self.in_size)
        self._kernels.library.hr_unpack_rows(
            self._kernels.crew, self._reference, indices.data_ptr(), indices.numel(), rows.data_ptr()
        )
        return rows


def panel_bytes(kernels: Kernels, weight_format: int, in_size: int, out_size: int) -> int:
    return int(kernels.library.hr_linear_bytes(weight_format, in_size, out_size))


class PanelMemory:
    """One piece of memory on huge pages, in which packed layers lie one after another."""

    def __init__(self, kernels: Kernels, layers: Iterable[tuple[int, int, int]]) -> None:
        """`layers`: the weight format, in_size and out_size of all that are to come."""
        self._kernels = kernels
        self._memory = huge_memory(sum(_aligned(panel_bytes(kernels, *layer)) for layer in layers))
        self._used = 0

    def pack(self, weight: torch.Tensor, bias: torch.Tensor | None, weight_format: int) -> PackedLinear:
        """`weight` is [out, in]."""
        readable = weight if weight.dtype in FORMATS else weight.float()
        packed = PackedLinear(self._kernels, readable, bias, weight_format, self._memory[self._used :])
        self._used += _aligned(packed.panels.nbytes)
        return packed


def huge_memory(size: int) -> torch.Tensor:
    """`size` bytes, zero, on huge pages where the system has them: reading weights is bound by memory."""
    memory = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)[:size]


def _aligned(size: int) -> int:
    return -(-size // 64) * 64
