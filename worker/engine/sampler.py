"""The sampler: one token for each row of logits.

A draw depends on the row, the job's seed, the choice index and the token's place in the answer, on nothing else:
no generator state, no neighbours. It inverts the cumulative distribution over the kept tokens in vocabulary order,
which, unlike an order by probability, is the same however a device sorts equal logits.
"""

from collections.abc import Sequence

import torch

from worker.engine.draw import Draw, RowParams, SamplingFailed
from worker.engine.torch_sampler import draw_with_torch
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.sampling import draw_with_kernels


def sample(
    logits: torch.Tensor, rows: Sequence[RowParams], kernels: Kernels | None = None
) -> list[Draw | SamplingFailed]:
    """A draw for each row of `logits` [R, V], or why there is none. One bad row does not spoil the others.

    `kernels`: draw with these, which takes logits on the CPU. The distribution is the same without.
    """
    if not rows:
        return []
    try:
        return draw_with_torch(logits, rows) if kernels is None else draw_with_kernels(kernels, logits, rows)
    except Exception as error:
        if len(rows) == 1:
            return [SamplingFailed(f"{type(error).__name__}: {error}")]
    return [drawn for i, row in enumerate(rows) for drawn in sample(logits[i : i + 1], [row], kernels)]
