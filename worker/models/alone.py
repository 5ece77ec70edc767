"""Tells transformers that this process computes alone, whatever torch could do."""

import torch
from transformers.utils import is_torch_distributed_available


def compute_alone() -> None:
    """Call it before transformers loads a configuration.

    It asks torch once whether tensors may be spread over processes, and remembers the answer. Where that is yes it
    loads all their code with any configuration: two seconds of every start, for what a worker never uses.
    """
    may_be_spread = torch.distributed.is_available
    torch.distributed.is_available = lambda: False
    try:
        is_torch_distributed_available()
    finally:
        torch.distributed.is_available = may_be_spread
