"""What the engine asks of a model."""

from collections.abc import Sequence
from typing import Protocol

import torch

from worker.engine.ragged_batch import RaggedBatch


class Model(Protocol):
    @property
    def vocab_size(self) -> int:
        """Token ids from 0 to this, exclusive, can be embedded."""

    @property
    def device(self) -> torch.device: ...

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """Logits [R, V] of the batch's logit rows. Writes keys and values of all its tokens into the KV pool."""

    def scrub(self, pages: Sequence[int]) -> None:
        """Overwrites what these pages hold with zeros."""


class PagedModel(Model, Protocol):
    """A model that makes the pool itself."""

    @property
    def bytes_per_page(self) -> int:
        """Of all layers together."""

    def allocate(self, num_pages: int) -> None:
        """Makes the KV pool."""
