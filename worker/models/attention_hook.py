"""The attention function that transformers' models call, and where it sends each call.

It is registered under a name of its own, without a mask function: transformers then builds no dense masks, and packed
sequences are kept apart by the kernels alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from transformers import AttentionInterface

from worker.kernels.interface import AttentionKernel, AttentionOptions
from worker.models.kv_pool import KVPool

HOOK = "headrace_paged"


class AttentionTarget(Protocol):
    """Takes the attention calls of one forward pass, in order."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: dict[str, Any]) -> torch.Tensor:
        """[T, query heads, value size]; `key` and `value` are those of the same T rows, [T, kv heads, size]."""


class PagedTarget:
    """Writes keys and values into the KV pool and attends over all pages of the batch.

    Layers are told apart by the order of their calls, not by a name: a model may run one module several times.
    """

    def __init__(self, kernel: AttentionKernel, plan: Any, pool: KVPool) -> None:
        self._kernel = kernel
        self._plan = plan
        self._layers = iter(pool.layers)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: dict[str, Any]) -> torch.Tensor:
        layer = next(self._layers)
        self._kernel.write(self._plan, layer, key, value)
        return self._kernel.attend(self._plan, query, layer, options_of(call))


def options_of(call: dict[str, Any]) -> AttentionOptions:
    """What a model's keyword arguments ask of a kernel."""
    return AttentionOptions(call.get("scaling"), call.get("sliding_window"), call.get("softcap"), call.get("s_aux"))


_target: ContextVar[AttentionTarget] = ContextVar("attention_target")


@contextmanager
def attention_goes_to(target: AttentionTarget) -> Iterator[None]:
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


def _attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **call: Any
) -> tuple[torch.Tensor, None]:
    """transformers' signature: tensors are [1, heads, T, size], the output is [1, T, query heads, value size]."""
    query, key, value = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    mask = args[0] if args else call.get("attention_mask")
    call = {**call, "attention_mask": mask, "is_causal": call.get("is_causal", getattr(module, "is_causal", True))}
    return _target.get().attend(query, key, value, call).unsqueeze(0), None


AttentionInterface.register(HOOK, _attention)
