"""The sampler: one token for each row of logits.

A draw depends on the row, the job's seed, the choice index and the token's place in the answer, on nothing else:
no generator state, no neighbours. It inverts the cumulative distribution over the kept tokens in vocabulary order,
which, unlike an order by probability, is the same however a device sorts equal logits.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from worker.protocol.job import SamplingParams

MIN_TEMPERATURE = 1e-5  # below it a distribution is a single token for every purpose, and float32 divisions overflow
NUM_CANDIDATES = 256  # most top_p and top_k cuts fall among so many; rows whose cut does not are sorted whole
BUCKET = 256  # tokens summed together before the draw looks at single ones


class SamplingFailed(Exception):
    """No token can be drawn for a row; the message says why."""


@dataclass(frozen=True, slots=True)
class RowParams:
    """How one row is sampled. `position` is the token's place in the answer, from 0."""

    sampling: SamplingParams
    choice: int
    position: int

    @property
    def is_greedy(self) -> bool:
        return self.sampling.temperature < MIN_TEMPERATURE or self.sampling.top_k == 1


def sample(logits: torch.Tensor, rows: Sequence[RowParams]) -> list[int | SamplingFailed]:
    """A token id for each row of `logits` [R, V], or why there is none. One bad row does not spoil the others."""
    try:
        return _sample_together(logits, rows)
    except Exception as error:
        if len(rows) == 1:
            return [SamplingFailed(f"{type(error).__name__}: {error}")]
    return [drawn for i, row in enumerate(rows) for drawn in sample(logits[i : i + 1], [row])]


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) made of these three integers alone, of any size and sign."""
    digest = hashlib.blake2b(f"{seed}:{choice}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _sample_together(logits: torch.Tensor, rows: Sequence[RowParams]) -> list[int | SamplingFailed]:
    if not rows:
        return []
    peaks, best = logits.max(dim=-1)  # NaN wins a maximum, so the peaks tell of every unusable row
    token_ids = best.clone()
    drawn_rows = [i for i, row in enumerate(rows) if not row.is_greedy]
    if drawn_rows:
        index = torch.tensor(drawn_rows, device=logits.device)
        token_ids[index] = _draw(logits[index].float(), [rows[i] for i in drawn_rows])
    usable = torch.isfinite(peaks).tolist()
    return [
        token_id if is_usable else SamplingFailed("the model's logits are not finite")
        for token_id, is_usable in zip(token_ids.tolist(), usable, strict=True)
    ]


def _draw(logits: torch.Tensor, rows: Sequence[RowParams]) -> torch.Tensor:
    """Token ids [R] drawn from float32 `logits` [R, V] under each row's temperature and filters."""
    temperature = _column([row.sampling.temperature for row in rows], logits)
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / temperature  # the peak is 0: nothing can overflow
    cutoff = _cutoffs(scaled, [row.sampling for row in rows])
    weights = scaled.exp().masked_fill(scaled < cutoff, 0.0)
    points = [uniform(row.sampling.seed, row.choice, row.position) for row in rows]
    return _invert(weights, _column(points, logits, torch.float64))


def _cutoffs(scaled: torch.Tensor, samplings: Sequence[SamplingParams]) -> torch.Tensor:
    """The scaled logit [R, 1] below which each row's tokens are out. Equal logits stay or go together."""
    floors = [math.log(params.min_p) if params.min_p > 0 else -math.inf for params in samplings]
    cutoff = _column(floors, scaled)
    vocab_size = scaled.shape[1]
    filtered = [i for i, params in enumerate(samplings) if params.top_p < 1 or 0 < params.top_k < vocab_size]
    num_candidates = min(NUM_CANDIDATES, vocab_size)
    while filtered:
        index = torch.tensor(filtered, device=scaled.device)
        found, is_complete = _rank_cutoffs(scaled[index], [samplings[i] for i in filtered], num_candidates)
        cutoff[index] = torch.maximum(cutoff[index], found)
        filtered = [i for i, complete in zip(filtered, is_complete.tolist(), strict=True) if not complete]
        num_candidates = vocab_size
    return cutoff


def _rank_cutoffs(
    scaled: torch.Tensor, samplings: Sequence[SamplingParams], num_candidates: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cutoffs [R, 1] of top_k and then top_p, from each row's best candidates, and whether those sufficed [R].

    Where they did not, there is no cutoff yet.
    """
    vocab_size = scaled.shape[1]
    best = scaled.topk(num_candidates, dim=-1).values
    top_k = torch.tensor(
        [[p.top_k if 0 < p.top_k < vocab_size else vocab_size] for p in samplings], device=scaled.device
    )
    kth = best.gather(1, (top_k - 1).clamp(max=num_candidates - 1))
    kth = kth.masked_fill(top_k > num_candidates, -math.inf)
    total = scaled.double().exp().masked_fill(scaled < kth, 0.0).sum(dim=-1, keepdim=True)
    mass = best.double().exp()
    mass_before = mass.cumsum(dim=-1) - mass
    top_p = _column([p.top_p for p in samplings], scaled, torch.float64)
    is_kept = (best >= kth) & ((mass_before < top_p * total) | (top_p >= 1))
    is_kept[:, 0] = True
    last = is_kept.sum(dim=-1, keepdim=True) - 1
    # When the last candidate is kept, a token beyond it might be too; only the whole vocabulary or top_k settles it.
    is_complete = (last < num_candidates - 1) | (top_k <= num_candidates) | (num_candidates == vocab_size)
    return best.gather(1, last).masked_fill(~is_complete, -math.inf), is_complete.squeeze(1)


def _invert(weights: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Ids [R] at which the running sum of `weights` [R, V] passes `points` [R, 1] of its total."""
    num_rows, vocab_size = weights.shape
    padded = torch.nn.functional.pad(weights, (0, -vocab_size % BUCKET)).view(num_rows, -1, BUCKET)
    running = padded.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    target = points * running[:, -1:]
    bucket = torch.searchsorted(running, target, right=True).clamp(max=running.shape[1] - 1)
    before = running.gather(1, (bucket - 1).clamp(min=0)).masked_fill(bucket == 0, 0.0)
    inside = padded[torch.arange(num_rows, device=weights.device), bucket.squeeze(1)]
    place = torch.searchsorted(inside.double().cumsum(dim=-1), target - before, right=True)
    # Rounding may carry the point past the last weight; the last token that has any weight is meant then.
    last = BUCKET - 1 - (inside > 0).flip(-1).int().argmax(dim=-1, keepdim=True)
    return (bucket * BUCKET + torch.minimum(place, last)).squeeze(1)


def _column(values: Sequence[float], like: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=like.device).unsqueeze(1)
