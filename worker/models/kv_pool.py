"""The KV pool: keys and values of every page, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class LayerLayout:
    """The shape of one attention layer's keys and values; the two may differ in size, and layers among each other."""

    num_heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return self.num_heads * (self.key_size + self.value_size) * self.dtype.itemsize


def bytes_per_token(layouts: Sequence[LayerLayout]) -> int:
    """Bytes of keys and values one token takes in all layers."""
    return sum(layout.bytes_per_token for layout in layouts)


class KVPool:
    """`keys[i]` and `values[i]` of layer i are [num_pages, page_size, heads, size], zero at the start."""

    def __init__(self, layouts: Sequence[LayerLayout], num_pages: int, page_size: int, device: torch.device) -> None:
        def zeros(layout: LayerLayout, size: int) -> torch.Tensor:
            return torch.zeros(num_pages, page_size, layout.num_heads, size, dtype=layout.dtype, device=device)

        self.keys = [zeros(layout, layout.key_size) for layout in layouts]
        self.values = [zeros(layout, layout.value_size) for layout in layouts]

    def scrub(self, pages: Sequence[int]) -> None:
        """Overwrites what these pages hold with zeros."""
        for tensor in (*self.keys, *self.values):
            tensor[list(pages)] = 0
