"""Log-probabilities: of the model's own distribution, before temperature, penalties, bias and filters.

That is what OpenAI-compatible servers report by default: it tells what the model thinks, not how it was asked to draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from worker.engine import buckets


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Natural logarithms of probabilities: of the chosen token, and of the likeliest ones by id, the best first."""

    chosen: float
    top: tuple[tuple[int, float], ...]


def row_logprobs(logits: torch.Tensor, token_ids: torch.Tensor, num_top: Sequence[int]) -> list[RowLogprobs]:
    """For each row of padded `logits` [R, V]: of its token of `token_ids` [R], and of the `num_top[row]` likeliest."""
    peaks = buckets.maxima(logits).amax(dim=-1, keepdim=True)
    totals = buckets.running_sums((logits - peaks).exp_())[:, -1:].log()
    chosen = (logits.gather(1, token_ids.unsqueeze(1)) - peaks).double() - totals
    count = min(max(num_top), logits.shape[1])
    if not count:
        return [RowLogprobs(logprob, ()) for logprob in chosen.squeeze(1).tolist()]
    values, ids = buckets.best(logits, count)
    tops = zip(ids.tolist(), ((values - peaks).double() - totals).tolist(), strict=True)
    rows = zip(chosen.squeeze(1).tolist(), tops, num_top, strict=True)
    return [RowLogprobs(own, _ordered(*top)[:num]) for own, top, num in rows]


def _ordered(ids: list[int], logprobs: list[float]) -> tuple[tuple[int, float], ...]:
    """The likeliest first; among equals the lower id."""
    return tuple(sorted(zip(ids, logprobs, strict=True), key=lambda pair: (-pair[1], pair[0])))
