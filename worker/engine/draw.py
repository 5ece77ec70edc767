"""What a draw is made from, and what comes of it."""

import hashlib
from dataclasses import dataclass

import torch

from worker.engine.adjustments import Adjustment
from worker.engine.logprobs import RowLogprobs
from worker.protocol.job import SamplingParams

MIN_TEMPERATURE = 1e-5  # below it a distribution is a single token for every purpose, and float32 divisions overflow
MASK_BITS = 32
NOT_FINITE = "the model's logits are not finite"
NOTHING_LEFT = "the model, the bans and the mask leave no token to draw"


class SamplingFailed(Exception):
    """No token can be drawn for a row; the message says why."""


@dataclass(frozen=True, slots=True)
class RowParams:
    """How one row is sampled. `position` is the token's place in the answer, from 0.

    `allowed`: int32 [vocabulary / 32, rounded up], a bit for each token that may be drawn, token 0 in the lowest bit
    of the first word. None: all may.
    """

    sampling: SamplingParams
    choice: int
    position: int
    adjustment: Adjustment | None = None
    allowed: torch.Tensor | None = None

    @property
    def is_greedy(self) -> bool:
        return self.sampling.temperature < MIN_TEMPERATURE or self.sampling.top_k == 1

    def check_mask(self, vocab_size: int) -> None:
        """Raises ValueError when `allowed` is not a mask of so many tokens."""
        mask = self.allowed
        if mask is None:
            return
        num_words = -(-vocab_size // MASK_BITS)
        if mask.dtype != torch.int32 or mask.shape != (num_words,) or not mask.is_contiguous():
            raise ValueError(f"a mask of {vocab_size} tokens is int32 [{num_words}], not {mask.dtype} {[*mask.shape]}")


@dataclass(frozen=True, slots=True)
class Draw:
    token_id: int
    logprobs: RowLogprobs | None = None


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) made of these three integers alone, of any size and sign."""
    digest = hashlib.blake2b(f"{seed}:{choice}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53
