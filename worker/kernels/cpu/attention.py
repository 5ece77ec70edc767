"""One layer's KV pages in the kernels' own layout, and attention over them."""

from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass

import torch

from worker.engine.ragged_batch import RaggedBatch
from worker.kernels.cpu.library import Kernels, NativeBatch, native_batch
from worker.kernels.cpu.linear import huge_memory
from worker.kernels.cpu.structures import FORMATS, Attention, KVLayout, Pages
from worker.kernels.interface import AttentionOptions, LayerLayout, UnservedLayout

MAX_HEAD_SIZE = 256


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


class NativeAttention:
    """See AttentionKernel. Computes in float32 on the CPU, over pages of float32 or bfloat16."""

    def __init__(self, kernels: Kernels, page_size: int) -> None:
        self._kernels = kernels
        self._page_size = page_size

    def bytes_per_page(self, layout: LayerLayout) -> int:
        native = self._shape(layout).layout
        return key_bytes(self._kernels, native) + value_bytes(self._kernels, native)

    def new_pages(self, layout: LayerLayout, num_pages: int) -> PagedLayer:
        return PagedLayer(self._kernels, self._shape(layout), num_pages)

    def scrub(self, layer: PagedLayer, pages: Sequence[int]) -> None:
        layer.scrub(pages)

    def plan(self, batch: RaggedBatch) -> NativeBatch:
        return native_batch(batch)

    def write(self, plan: NativeBatch, layer: PagedLayer, keys: torch.Tensor, values: torch.Tensor) -> None:
        layer.write(plan, keys, values)

    def attend(
        self, plan: NativeBatch, query: torch.Tensor, layer: PagedLayer, options: AttentionOptions
    ) -> torch.Tensor:
        return layer.attend(plan, query, options)

    def _shape(self, layout: LayerLayout) -> PageShape:
        if max(layout.key_size, layout.value_size) > MAX_HEAD_SIZE:
            raise UnservedLayout(f"heads of {layout.key_size} and {layout.value_size} elements")
        if layout.dtype not in FORMATS:
            raise UnservedLayout(f"keys and values in {layout.dtype}")
        return PageShape(self._page_size, layout.num_heads, layout.key_size, layout.value_size, layout.dtype)


def key_bytes(kernels: Kernels, layout: KVLayout) -> int:
    """Bytes that the keys of one page take in one layer."""
    return int(kernels.library.hr_page_bytes_of_keys(byref(layout)))


def value_bytes(kernels: Kernels, layout: KVLayout) -> int:
    """Bytes that the values of one page take in one layer."""
    return int(kernels.library.hr_page_bytes_of_values(byref(layout)))
