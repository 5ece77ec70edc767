"""The generic model: any transformers causal LM whose only cross-token state is attention, over our KV pool."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from worker.engine.ragged_batch import RaggedBatch
from worker.kernels.cpu.attention import NativeAttention
from worker.kernels.dispatch import attention_kernel
from worker.kernels.interface import AttentionKernel
from worker.models.attention_hook import PagedTarget, attention_goes_to
from worker.models.kv_pool import KVPool
from worker.models.probe import probe

FEW_TOKENS = 64


class GenericModel:
    """See Model. Call `allocate` once before the first forward pass."""

    def __init__(
        self,
        network: Any,
        page_size: int,
        kernel: AttentionKernel | None = None,
        page_dtype: torch.dtype | None = None,
    ) -> None:
        """`network` is a transformers model that loads with our attention hook.

        `kernel`: plain torch where absent. `page_dtype`: what pages hold; the type the network computes in where
        absent. Raises ModelRefused, and UnservedLayout as the kernel does.
        """
        self.device: torch.device = network.device
        self.vocab_size: int = network.get_input_embeddings().num_embeddings
        self._network = network
        self._kernel = attention_kernel(self.device, page_size) if kernel is None else kernel
        self._can_select_rows = "logits_to_keep" in inspect.signature(network.forward).parameters
        layouts = probe(network, self._kernel, page_size)
        self._layouts = [replace(layout, dtype=page_dtype or layout.dtype) for layout in layouts]
        self._pool = KVPool(self._kernel, [], 0)

    @property
    def bytes_per_page(self) -> int:
        return sum(self._kernel.bytes_per_page(layout) for layout in self._layouts)

    def allocate(self, num_pages: int) -> None:
        """Makes the KV pool."""
        self._pool = KVPool(self._kernel, self._layouts, num_pages)

    @torch.inference_mode()
    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        target = PagedTarget(self._kernel, self._kernel.plan(batch), self._pool)
        selection = {"logits_to_keep": batch.logit_rows} if self._can_select_rows else {}
        with attention_goes_to(target), self._threads_for(len(batch.token_ids)):
            output = self._network(
                input_ids=batch.token_ids[None], position_ids=batch.positions[None], use_cache=False, **selection
            )
        logits: torch.Tensor = output.logits[0]
        return logits if self._can_select_rows else logits[batch.logit_rows]

    @contextmanager
    def _threads_for(self, num_tokens: int) -> Iterator[None]:
        """What torch computes between two calls of our kernels is too little, in few tokens, to share with a thread.

        Its threads would also take the cores from ours.
        """
        if num_tokens > FEW_TOKENS or not isinstance(self._kernel, NativeAttention):
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def scrub(self, pages: Sequence[int]) -> None:
        self._pool.scrub(pages)
