"""The sampler: one token for each row of logits.

A draw depends on the row, the job's seed, the choice index and the token's place in the answer, on nothing else:
no generator state, no neighbours. It inverts the cumulative distribution over the kept tokens in vocabulary order,
which, unlike an order by probability, is the same however a device sorts equal logits.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from worker.engine import buckets
from worker.engine.adjustments import Adjustment, adjust
from worker.engine.filters import Candidates, is_filtered, wide_cutoff
from worker.engine.logprobs import RowLogprobs, row_logprobs
from worker.protocol.job import SamplingParams

MIN_TEMPERATURE = 1e-5  # below it a distribution is a single token for every purpose, and float32 divisions overflow


class SamplingFailed(Exception):
    """No token can be drawn for a row; the message says why."""


@dataclass(frozen=True, slots=True)
class RowParams:
    """How one row is sampled. `position` is the token's place in the answer, from 0."""

    sampling: SamplingParams
    choice: int
    position: int
    adjustment: Adjustment | None = None

    @property
    def is_greedy(self) -> bool:
        return self.sampling.temperature < MIN_TEMPERATURE or self.sampling.top_k == 1


@dataclass(frozen=True, slots=True)
class Draw:
    token_id: int
    logprobs: RowLogprobs | None = None


def sample(logits: torch.Tensor, rows: Sequence[RowParams]) -> list[Draw | SamplingFailed]:
    """A draw for each row of `logits` [R, V], or why there is none. One bad row does not spoil the others."""
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


def _sample_together(logits: torch.Tensor, rows: Sequence[RowParams]) -> list[Draw | SamplingFailed]:
    if not rows:
        return []
    model_logits = buckets.padded(logits)
    shifted = _adjusted(model_logits, rows)
    token_ids, is_usable = _choose(shifted, rows)
    logprobs = _logprobs(model_logits, token_ids, rows)
    return [
        Draw(token_id, logprobs.get(i)) if usable else SamplingFailed("the model's logits are not finite")
        for i, (token_id, usable) in enumerate(zip(token_ids.tolist(), is_usable, strict=True))
    ]


def _adjusted(model_logits: torch.Tensor, rows: Sequence[RowParams]) -> torch.Tensor:
    """The logits as the jobs want them changed; the model's own are left as they are."""
    wanted = {i: row.adjustment for i, row in enumerate(rows) if row.adjustment is not None}
    if not wanted:
        return model_logits
    index = torch.tensor(list(wanted), device=model_logits.device)
    part = model_logits[index]
    adjust(part, list(wanted.values()), [rows[i].position for i in wanted])
    return part if len(part) == len(rows) else model_logits.index_copy(0, index, part)


def _choose(logits: torch.Tensor, rows: Sequence[RowParams]) -> tuple[torch.Tensor, list[bool]]:
    """Token ids [R] from padded `logits` [R, V], and whether each row's logits allow a choice."""
    maxima = buckets.maxima(logits)  # NaN wins a maximum, so the peaks tell of every unusable row
    peaks = maxima.amax(dim=-1, keepdim=True)
    is_usable: list[bool] = torch.isfinite(peaks).squeeze(1).tolist()
    token_ids = buckets.argmax(logits, maxima)
    drawn = [i for i, row in enumerate(rows) if is_usable[i] and not row.is_greedy]
    if len(drawn) == len(rows):
        token_ids = _draw(logits, peaks, rows)
    elif drawn:
        index = torch.tensor(drawn, device=logits.device)
        token_ids[index] = _draw(logits[index], peaks[index], [rows[i] for i in drawn])
    return token_ids, is_usable


def _draw(logits: torch.Tensor, peaks: torch.Tensor, rows: Sequence[RowParams]) -> torch.Tensor:
    """Token ids [R] drawn under each row's temperature and filters."""
    samplings = [row.sampling for row in rows]
    temperatures = torch.tensor([[each.temperature] for each in samplings], device=logits.device)
    weights = (logits - peaks).div_(temperatures).exp_()  # the peak weighs 1: nothing can overflow
    running = buckets.running_sums(weights)
    points = [uniform(row.sampling.seed, row.choice, row.position) for row in rows]
    point = torch.tensor(points, dtype=torch.float64, device=logits.device).unsqueeze(1)
    filtered = [i for i, each in enumerate(samplings) if is_filtered(each, logits.shape[1])]
    if len(filtered) == len(rows):
        return _draw_filtered(weights, running, point, samplings)
    token_ids = buckets.invert(weights, running, point)
    if filtered:
        index = torch.tensor(filtered, device=logits.device)
        chosen = [samplings[i] for i in filtered]
        token_ids[index] = _draw_filtered(weights[index], running[index], point[index], chosen)
    return token_ids


def _draw_filtered(
    weights: torch.Tensor, running: torch.Tensor, points: torch.Tensor, samplings: Sequence[SamplingParams]
) -> torch.Tensor:
    candidates = Candidates(weights, running[:, -1:], samplings)
    token_ids = candidates.invert(points)
    wide = [i for i, is_complete in enumerate(candidates.is_complete) if not is_complete]
    for i in wide:
        kept = weights[i : i + 1]
        kept = kept * (kept >= wide_cutoff(kept[0], samplings[i]))
        token_ids[i : i + 1] = buckets.invert(kept, buckets.running_sums(kept), points[i : i + 1])
    return token_ids


def _logprobs(model_logits: torch.Tensor, token_ids: torch.Tensor, rows: Sequence[RowParams]) -> dict[int, RowLogprobs]:
    wanted = {i: row.sampling.logprobs for i, row in enumerate(rows) if row.sampling.logprobs is not None}
    if not wanted:
        return {}
    index = torch.tensor(list(wanted), device=model_logits.device)
    found = row_logprobs(model_logits[index], token_ids[index], list(wanted.values()))
    return dict(zip(wanted, found, strict=True))
