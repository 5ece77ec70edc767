"""The generic model: any transformers causal LM whose only cross-token state is attention, over our KV pool."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from worker.engine.ragged_batch import RaggedBatch
from worker.kernels.dispatch import attention_kernel
from worker.models.attention_hook import PagedTarget, attention_goes_to
from worker.models.kv_pool import KVPool, bytes_per_token
from worker.models.probe import probe


class GenericModel:
    """See Model. Call `allocate` once before the first forward pass."""

    def __init__(self, network: Any, page_size: int) -> None:
        """`network` is a transformers model that loads with our attention hook. Raises ModelRefused."""
        self.device: torch.device = network.get_input_embeddings().weight.device
        self.vocab_size: int = network.get_input_embeddings().num_embeddings
        self._network = network
        self._page_size = page_size
        self._kernel = attention_kernel(self.device)
        self._can_select_rows = "logits_to_keep" in inspect.signature(network.forward).parameters
        self._layouts = probe(network, self._kernel, page_size)
        self._pool = KVPool([], 0, page_size, self.device)

    @property
    def bytes_per_page(self) -> int:
        return bytes_per_token(self._layouts) * self._page_size

    def allocate(self, num_pages: int) -> None:
        """Makes the KV pool."""
        self._pool = KVPool(self._layouts, num_pages, self._page_size, self.device)

    @torch.inference_mode()
    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        target = PagedTarget(self._kernel, self._kernel.plan(batch), self._pool)
        selection = {"logits_to_keep": batch.logit_rows} if self._can_select_rows else {}
        with attention_goes_to(target):
            output = self._network(
                input_ids=batch.token_ids[None], position_ids=batch.positions[None], use_cache=False, **selection
            )
        logits: torch.Tensor = output.logits[0]
        return logits if self._can_select_rows else logits[batch.logit_rows]

    def scrub(self, pages: Sequence[int]) -> None:
        self._pool.scrub(pages)
