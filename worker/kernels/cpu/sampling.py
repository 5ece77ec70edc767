"""Draws by the kernels: the whole way from a row of logits to its token in one pass through the processor's cache."""

from collections.abc import Sequence

import numpy as np
import torch

from worker.engine.adjustments import Adjustment
from worker.engine.draw import NOT_FINITE, NOTHING_LEFT, Draw, RowParams, SamplingFailed, uniform
from worker.engine.logprobs import RowLogprobs
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.structures import Drawn, Sampling

DRAWN = 0  # of hr_draw_status
NO_CHANGES = (0, None, None, 0, None, None, 0, None)


def draw_with_kernels(kernels: Kernels, logits: torch.Tensor, rows: Sequence[RowParams]) -> list[Draw | SamplingFailed]:
    """A draw for each row of `logits` [R, V] on the CPU, or why there is none. Parameters of the wrong type raise."""
    logits = logits.float().contiguous()
    vocab_size = logits.shape[1]
    tops = [_likeliest(row.sampling.logprobs) for row in rows]
    samplings = (Sampling * len(rows))(*[_sampling(*pair, vocab_size) for pair in zip(rows, tops, strict=True)])
    drawn = (Drawn * len(rows))()
    kernels.library.hr_sample(kernels.crew, logits.data_ptr(), vocab_size, samplings, len(rows), drawn)
    return [_draw(*pair, vocab_size) for pair in zip(drawn, tops, strict=True)]


class _Likeliest:
    """Room for the likeliest tokens of a row and their logarithms."""

    def __init__(self, num_top: int | None) -> None:
        self.num = -1 if num_top is None else num_top
        self._ids = np.empty(self.num, np.int64) if self.num > 0 else None
        self._logprobs = np.empty(self.num, np.float64) if self.num > 0 else None

    @property
    def pointers(self) -> tuple[int | None, int | None]:
        if self._ids is None or self._logprobs is None:
            return None, None
        return self._ids.ctypes.data, self._logprobs.ctypes.data

    def logprobs(self, chosen: float) -> RowLogprobs | None:
        if self._ids is None or self._logprobs is None:
            return None if self.num < 0 else RowLogprobs(chosen, ())
        pairs = zip(self._ids.tolist(), self._logprobs.tolist(), strict=True)
        return RowLogprobs(chosen, tuple(pair for pair in pairs if pair[0] >= 0))


NONE_TOLD = _Likeliest(None)


def _likeliest(num_top: int | None) -> _Likeliest:
    return NONE_TOLD if num_top is None else _Likeliest(num_top)


def _sampling(row: RowParams, top: _Likeliest, vocab_size: int) -> Sampling:
    row.check_mask(vocab_size)
    sampling, is_greedy = row.sampling, row.is_greedy
    return Sampling(
        0.0 if is_greedy else uniform(sampling.seed, row.choice, row.position),
        sampling.top_p,
        sampling.frequency_penalty,
        sampling.presence_penalty,
        0.0 if is_greedy else sampling.temperature,
        sampling.min_p,
        sampling.repetition_penalty,
        sampling.top_k,
        *_changes(row.adjustment, row.position),
        None if row.allowed is None else row.allowed.data_ptr(),
        top.num,
        *top.pointers,
    )


def _changes(adjustment: Adjustment | None, position: int) -> tuple[int | None, ...]:
    """Tokens seen with their counts, biased ones with their biases, and banned ones: lengths and pointers.

    They point into arrays of the adjustment, which stay where they are until its answer grows.
    """
    if adjustment is None:
        return NO_CHANGES
    seen, banned = adjustment.seen_ids, adjustment.banned_ids(position)
    return (
        len(seen), seen.ctypes.data, adjustment.seen_counts.ctypes.data,
        len(adjustment.bias_ids), adjustment.bias_ids.ctypes.data, adjustment.bias.ctypes.data,
        len(banned), banned.ctypes.data,
    )  # fmt: skip


def _draw(drawn: Drawn, top: _Likeliest, vocab_size: int) -> Draw | SamplingFailed:
    if drawn.status == DRAWN:
        return Draw(drawn.token_id, top.logprobs(drawn.logprob))
    reasons = {1: NOT_FINITE, 2: NOTHING_LEFT, 3: f"a token outside 0 to {vocab_size - 1} cannot be adjusted"}
    return SamplingFailed(reasons[drawn.status])
