"""A model as the engine gets it, whichever path computes it."""

from dataclasses import dataclass
from typing import Any

import torch

from worker.kernels.cpu.library import Kernels
from worker.models.interface import PagedModel


@dataclass(frozen=True)
class ServedModel:
    """A model and what the engine must know beside it."""

    model: PagedModel
    config: Any  # transformers' own
    tokenizer: Any
    end_token_ids: frozenset[int]
    fingerprint: str  # workers with the same one compute the same numbers
    kernels: Kernels | None = None  # those the model computes with


def fingerprint(arithmetic: str, dtype: torch.dtype, quantization: str, weights: str) -> str:
    """Arithmetic, dtype, quantization, shards, weights."""
    return "/".join((arithmetic, str(dtype).removeprefix("torch."), quantization, "tp1", weights))
