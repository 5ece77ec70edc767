"""Packed linear layers."""

import mmap
from ctypes import byref

import torch

from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.structures import BF16, FORMATS, INT4, INT8, Linear

GROUP = 32  # weights that share a scale


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

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, out] in float32 from `x` [rows, in] in float32."""
        x = x.contiguous()
        y = x.new_empty(x.shape[0], self.out_size)
        self._kernels.library.hr_linear_forward(
            self._kernels.crew, byref(self.structure), x.data_ptr(), self.in_size, x.shape[0],
            y.data_ptr(), self.out_size,
        )  # fmt: skip
        return y


def format_for(wanted: int, in_size: int) -> int:
    """The weight format to use where `wanted` is asked for: quantized ones need whole groups."""
    return BF16 if wanted in (INT8, INT4) and in_size % GROUP else wanted


def panel_bytes(kernels: Kernels, weight_format: int, in_size: int, out_size: int) -> int:
    return int(kernels.library.hr_linear_bytes(weight_format, in_size, out_size))


def huge_memory(size: int) -> torch.Tensor:
    """`size` bytes, zero, on huge pages where the system has them: reading weights is bound by memory."""
    memory = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)[:size]
