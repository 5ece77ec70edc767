"""The one interface of all attention kernels."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from worker.engine.ragged_batch import RaggedBatch

LayerCache = tuple[torch.Tensor, torch.Tensor]  # keys and values of a layer: [pages, page size, kv heads, size] each


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """How one layer attends, as its model defines it."""

    scaling: float | None = None  # of the scores; None: one over the square root of the key size
    sliding_window: int | None = None  # a token sees itself and the `sliding_window - 1` before it; None: all
    softcap: float | None = None  # scores are squeezed into -softcap..softcap by tanh
    sinks: torch.Tensor | None = None  # [query heads] a score per head that takes weight but has no value


class AttentionKernel(Protocol):
    """Ragged paged attention. Plan once a step, attend once a layer."""

    def plan(self, batch: RaggedBatch) -> Any:
        """Whatever index tensors the layers share; opaque to callers."""

    def write(self, plan: Any, cache: LayerCache, new: LayerCache) -> None:
        """Stores the batch's keys and values, each [T, kv heads, size], in the layer's pages."""

    def attend(self, plan: Any, query: torch.Tensor, cache: LayerCache, options: AttentionOptions) -> torch.Tensor:
        """[T, query heads, value size] from `query` [T, query heads, key size] and the layer's pages."""
