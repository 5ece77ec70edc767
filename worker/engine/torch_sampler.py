"""Draws in plain torch, on any device: the reference for the kernels, and what serves where there are none."""

import math
from collections.abc import Sequence

import torch

from worker.engine import buckets
from worker.engine.adjustments import adjust
from worker.engine.draw import MASK_BITS, NOT_FINITE, NOTHING_LEFT, Draw, RowParams, SamplingFailed, uniform
from worker.engine.filters import Candidates, is_filtered, wide_cutoff
from worker.engine.logprobs import RowLogprobs, row_logprobs
from worker.protocol.job import SamplingParams


def draw_with_torch(logits: torch.Tensor, rows: Sequence[RowParams]) -> list[Draw | SamplingFailed]:
    """A draw for each row of `logits` [R, V], R > 0, or why its logits give none. Parameters out of range raise."""
    for row in rows:
        row.check_mask(logits.shape[1])
    model_logits = buckets.padded(logits)
    shifted = _masked(_adjusted(model_logits, rows), rows)
    token_ids, peaks = _choose(shifted, rows)
    logprobs = _logprobs(model_logits, token_ids, rows)
    return [
        _failure(peak) or Draw(token_id, logprobs.get(i))
        for i, (token_id, peak) in enumerate(zip(token_ids.tolist(), peaks, strict=True))
    ]


def _failure(peak: float) -> SamplingFailed | None:
    if math.isfinite(peak):
        return None
    return SamplingFailed(NOTHING_LEFT if peak == -math.inf else NOT_FINITE)


def _adjusted(model_logits: torch.Tensor, rows: Sequence[RowParams]) -> torch.Tensor:
    """The logits as the jobs want them changed; the model's own are left as they are."""
    wanted = {i: row.adjustment for i, row in enumerate(rows) if row.adjustment is not None}
    if not wanted:
        return model_logits
    index = torch.tensor(list(wanted), device=model_logits.device)
    part = model_logits[index]
    adjust(part, list(wanted.values()), [rows[i].position for i in wanted])
    return part if len(part) == len(rows) else model_logits.index_copy(0, index, part)


def _masked(logits: torch.Tensor, rows: Sequence[RowParams]) -> torch.Tensor:
    """Padded `logits` [R, V] without what masks forbid; the given ones are left as they are."""
    masks = {i: row.allowed for i, row in enumerate(rows) if row.allowed is not None}
    if not masks:
        return logits
    index = torch.tensor(list(masks), device=logits.device)
    words = torch.stack(list(masks.values())).to(logits.device)
    bits = words.unsqueeze(2) >> torch.arange(MASK_BITS, dtype=torch.int32, device=logits.device) & 1
    is_forbidden = bits.flatten(1)[:, : logits.shape[1]] == 0
    return logits.index_copy(0, index, logits[index].masked_fill(is_forbidden, -torch.inf))


def _choose(logits: torch.Tensor, rows: Sequence[RowParams]) -> tuple[torch.Tensor, list[float]]:
    """Token ids [R] from padded `logits` [R, V], and the largest logit of each row: finite where it allows a choice."""
    maxima = buckets.maxima(logits)  # NaN wins a maximum, so the peaks tell of every unusable row
    peaks = maxima.amax(dim=-1, keepdim=True)
    largest: list[float] = peaks.squeeze(1).tolist()
    token_ids = buckets.argmax(logits, maxima)
    drawn = [i for i, row in enumerate(rows) if math.isfinite(largest[i]) and not row.is_greedy]
    if len(drawn) == len(rows):
        token_ids = _draw(logits, peaks, rows)
    elif drawn:
        index = torch.tensor(drawn, device=logits.device)
        token_ids[index] = _draw(logits[index], peaks[index], [rows[i] for i in drawn])
    return token_ids, largest


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
