"""The one interface of all attention kernels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from worker.engine.ragged_batch import RaggedBatch


@dataclass(frozen=True)
class LayerLayout:
    """The shape of one attention layer's keys and values; the two may differ in size, and layers among each other."""

    num_heads: int
    key_size: int
    value_size: int
    dtype: torch.dtype  # in which they are kept


class UnservedLayout(ValueError):
    """This kernel cannot attend over such a layer; the message says why."""


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """How one layer attends, as its model defines it."""

    scaling: float | None = None  # of the scores; None: one over the square root of the key size
    sliding_window: int | None = None  # a token sees itself and the `sliding_window - 1` before it; None: all
    softcap: float | None = None  # scores are squeezed into -softcap..softcap by tanh
    sinks: torch.Tensor | None = None  # [query heads] a score per head that takes weight but has no value


class AttentionKernel(Protocol):
    """Ragged paged attention. Plan once a step, write and attend once a layer."""

    def bytes_per_page(self, layout: LayerLayout) -> int:
        """Bytes that one page of such a layer takes."""

    def new_pages(self, layout: LayerLayout, num_pages: int) -> Any:
        """One layer's pages, all zero; opaque to callers. Raises UnservedLayout."""

    def scrub(self, layer: Any, pages: Sequence[int]) -> None:
        """Overwrites what these pages of a layer hold with zeros."""

    def plan(self, batch: RaggedBatch) -> Any:
        """Whatever the layers share; opaque to callers."""

    def write(self, plan: Any, layer: Any, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Stores the batch's keys and values, each [T, kv heads, size], in the layer's pages."""

    def attend(self, plan: Any, query: torch.Tensor, layer: Any, options: AttentionOptions) -> torch.Tensor:
        """[T, query heads, value size] from `query` [T, query heads, key size] and the layer's pages."""
