"""top_k, top_p and min_p: which tokens of a row may be drawn.

They apply one after the other, each to what the one before it kept. Tokens of equal weight stay or go together, so the
outcome never depends on an order among equals. Weights are exponentials of scaled logits; the largest of a row is 1.
"""

from collections.abc import Sequence

import torch

from worker.engine import buckets
from worker.protocol.job import SamplingParams

NUM_CANDIDATES = 128  # most cuts fall among so many; the others are found without sorting the vocabulary either
BIN_SHIFT = 16  # float32 bits dropped to sort weights into bins: those left order them and are good to 1 in 128


def is_filtered(sampling: SamplingParams, vocab_size: int) -> bool:
    return sampling.top_p < 1 or 0 < sampling.top_k < vocab_size or sampling.min_p > 0


class Candidates:
    """The likeliest tokens of filtered rows, those of them that are kept, and whether that is all that is kept."""

    def __init__(self, weights: torch.Tensor, totals: torch.Tensor, samplings: Sequence[SamplingParams]) -> None:
        """`weights` [R, V], `totals` float64 [R, 1] their sums."""
        vocab_size = weights.shape[1]
        count = min(NUM_CANDIDATES, vocab_size)
        best, self._ids = buckets.best(weights, count)
        top_k = torch.tensor([[each.top_k or vocab_size] for each in samplings], device=weights.device)
        top_p, min_p = (_column([getattr(each, name) for each in samplings], weights) for name in ("top_p", "min_p"))
        kth = best.gather(1, (top_k - 1).clamp(max=count - 1)).masked_fill(top_k > count, 0.0)
        mass = best.double().masked_fill(best < kth, 0.0)
        total = torch.where(top_k > count, totals, mass.sum(dim=-1, keepdim=True))
        is_kept = (best >= kth) & ((mass.cumsum(dim=-1) - mass < top_p * total) | (top_p >= 1)) & (best >= min_p)
        is_kept[:, 0] = True
        cutoff = best.gather(1, is_kept.sum(dim=-1, keepdim=True) - 1)
        # Known: what top_k keeps, of which top_p is a share. Complete: the last candidate is out, so are all beyond.
        is_known = (top_k >= vocab_size) | (kth > best[:, -1:])
        self.is_complete: list[bool] = (is_known & (best[:, -1:] < cutoff) | (count == vocab_size)).squeeze(1).tolist()
        self._kept = best.masked_fill(best < cutoff, 0.0)

    def invert(self, points: torch.Tensor) -> torch.Tensor:
        """Token ids [R] at which the running sum of the kept weights, in vocabulary order, passes `points` [R, 1]."""
        ids, order = self._ids.sort(dim=-1)
        running = self._kept.gather(1, order).double().cumsum(dim=-1)
        target = points * running[:, -1:]
        place = torch.searchsorted(running, target, right=True)
        # Rounding may carry the point to the end; the first place where the sum is whole is the last with a weight.
        last = (running < running[:, -1:]).sum(dim=-1, keepdim=True)
        return ids.gather(1, torch.minimum(place, last)).squeeze(1)


def wide_cutoff(weights: torch.Tensor, sampling: SamplingParams) -> torch.Tensor:
    """The least weight, a scalar tensor, that is kept of a whole row `weights` [V]."""
    cutoff = weights.new_zeros(())
    kept = weights
    if 0 < sampling.top_k < len(weights):
        cutoff = weights.topk(sampling.top_k).values[-1]
        kept = weights[weights >= cutoff]
    if sampling.top_p < 1:
        cutoff = torch.maximum(cutoff, _nucleus_cutoff(kept, sampling.top_p))
    return cutoff.clamp(min=sampling.min_p)


def _nucleus_cutoff(weights: torch.Tensor, top_p: float) -> torch.Tensor:
    """The weight of the last token that top_p keeps, found by sorting only the bin in which the cut falls."""
    bins = weights.view(torch.int32) >> BIN_SHIFT  # the bits of floats that are not negative are ordered as they are
    mass_of_bin = torch.bincount(bins, weights=weights.double())
    mass_from = mass_of_bin.flip(0).cumsum(0).flip(0)
    wanted = top_p * mass_from[0]
    cut_bin = ((mass_from >= wanted).sum() - 1).clamp(min=0)
    members = weights[bins == cut_bin].sort(descending=True).values
    mass_before = mass_from[cut_bin] - mass_of_bin[cut_bin] + members.double().cumsum(0) - members.double()
    num_kept = (mass_before < wanted).sum().clamp(min=1)
    return members[num_kept - 1]


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device).unsqueeze(1)
