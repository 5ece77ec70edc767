"""The KV pool: keys and values of every page, layer by layer."""

from collections.abc import Sequence
from typing import Any

from worker.kernels.interface import AttentionKernel, LayerLayout


class KVPool:
    """`layers[i]` holds the pages of layer i as its kernel lays them out, zero at the start."""

    def __init__(self, kernel: AttentionKernel, layouts: Sequence[LayerLayout], num_pages: int) -> None:
        self._kernel = kernel
        self.layers: list[Any] = [kernel.new_pages(layout, num_pages) for layout in layouts]

    def scrub(self, pages: Sequence[int]) -> None:
        """Overwrites what these pages hold with zeros."""
        for layer in self.layers:
            self._kernel.scrub(layer, pages)
