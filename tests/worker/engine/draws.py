"""Many draws, and the distribution they should have."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from worker.engine.adjustments import Adjustment
from worker.engine.draw import Draw, RowParams, SamplingFailed
from worker.engine.sampler import sample
from worker.kernels.cpu.library import Kernels
from worker.protocol.job import SamplingParams

NUM_DRAWS = 4000
LOGITS = torch.tensor([1.0, 2.0, 3.0, 0.0, 2.5, -1.0, 1.7, 0.5])


def params(**changes: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 1, "seed": 5, **changes})


def ids_of(draws: list[Draw | SamplingFailed]) -> list[int]:
    return [draw.token_id for draw in draws if isinstance(draw, Draw)]


class Draws:
    """The sampler over some kernels, or over plain torch."""

    def __init__(self, kernels: Kernels | None) -> None:
        self._kernels = kernels

    def sample(self, logits: torch.Tensor, rows: Sequence[RowParams]) -> list[Draw | SamplingFailed]:
        return sample(logits, rows, self._kernels)

    def many(
        self, logits: torch.Tensor, num_draws: int = NUM_DRAWS, adjustment: Adjustment | None = None, **changes: Any
    ) -> torch.Tensor:
        """How often each token was drawn."""
        rows = [RowParams(params(**changes), 0, position, adjustment) for position in range(num_draws)]
        drawn = ids_of(self.sample(logits.expand(num_draws, -1), rows))
        assert len(drawn) == num_draws
        return torch.bincount(torch.tensor(drawn), minlength=logits.shape[0])


def exact_probabilities(logits: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """The filters one after the other, each over what the one before it kept, as transformers applies them."""
    scaled = logits.double() / sampling.temperature
    if sampling.top_k:
        scaled[scaled < scaled.topk(min(sampling.top_k, len(scaled))).values[-1]] = -math.inf
    order = scaled.argsort(descending=True)
    probabilities = scaled.softmax(0)[order]
    is_cut = probabilities.cumsum(0) - probabilities >= sampling.top_p
    is_cut[0] = False
    if sampling.top_p < 1:
        scaled[order[is_cut]] = -math.inf
    probabilities = scaled.softmax(0)
    scaled[probabilities < sampling.min_p * probabilities.max()] = -math.inf
    return scaled.softmax(0)


def chi_square(counts: torch.Tensor, probabilities: torch.Tensor) -> tuple[float, int]:
    """The statistic, and its degrees of freedom. Tokens without probability must not have been drawn."""
    is_possible = probabilities > 0
    assert counts[~is_possible].sum() == 0
    expected = probabilities[is_possible] * counts.sum()
    return ((counts[is_possible] - expected) ** 2 / expected).sum().item(), int(is_possible.sum()) - 1
