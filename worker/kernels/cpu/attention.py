"""One layer's KV pages in the kernels' own layout, and attention over them."""

from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass

import torch

from worker.kernels.cpu.library import Kernels, NativeBatch
from worker.kernels.cpu.linear import huge_memory
from worker.kernels.cpu.structures import FORMATS, Attention, KVLayout, Pages
from worker.kernels.interface import AttentionOptions


@dataclass(frozen=True)
class PageShape:
    """What a page of one layer holds: `page_size` tokens' keys and values, in float32 or bfloat16."""

    page_size: int
    kv_heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype

    @property
    def layout(self) -> KVLayout:
        return KVLayout(FORMATS[self.dtype], self.page_size, self.kv_heads, self.key_size, self.value_size)


class PagedLayer:
    """The pages of one layer, `keys` and `values` [num_pages, bytes a page], zero at the start."""

    def __init__(self, kernels: Kernels, shape: PageShape, num_pages: int) -> None:
        self._kernels = kernels
        self._shape = shape
        self._layout = shape.layout
        self.keys, self.values = (
            huge_memory(num_pages * size).view(num_pages, size)
            for size in (key_bytes(kernels, self._layout), value_bytes(kernels, self._layout))
        )
        self._pages = Pages(self.keys.data_ptr(), self.values.data_ptr())

    def write(self, batch: NativeBatch, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Stores the batch's keys and values, each [T, kv heads, size] in float32."""
        keys, values = keys.contiguous(), values.contiguous()
        self._kernels.library.hr_write_kv(
            self._kernels.crew, byref(self._layout), byref(batch.structure), keys.data_ptr(), values.data_ptr(),
            self._pages,
        )  # fmt: skip

    def attend(self, batch: NativeBatch, query: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
        """[T, query heads, value size] in float32 from `query` [T, query heads, key size] in float32."""
        query = query.contiguous()
        num_tokens, heads, key_size = query.shape
        output = torch.empty(num_tokens, heads, self._shape.value_size)
        sinks = None if options.sinks is None else options.sinks.float().contiguous()
        attention = Attention(
            heads,
            options.sliding_window or 0,
            key_size**-0.5 if options.scaling is None else options.scaling,
            options.softcap or 0.0,
            None if sinks is None else sinks.data_ptr(),
        )
        self._kernels.library.hr_attend(
            self._kernels.crew, byref(self._layout), byref(attention), byref(batch.structure), query.data_ptr(),
            self._pages, output.data_ptr(),
        )  # fmt: skip
        return output

    def scrub(self, pages: Sequence[int]) -> None:
        """Overwrites what these pages hold with zeros."""
        self.keys[list(pages)] = 0
        self.values[list(pages)] = 0


def key_bytes(kernels: Kernels, layout: KVLayout) -> int:
    """Bytes that the keys of one page take in one layer."""
    return int(kernels.library.hr_page_bytes_of_keys(byref(layout)))


def value_bytes(kernels: Kernels, layout: KVLayout) -> int:
    """Bytes that the values of one page take in one layer."""
    return int(kernels.library.hr_page_bytes_of_values(byref(layout)))
