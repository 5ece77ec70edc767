"""Rows over a vocabulary cut into buckets: what a step needs of them without sorting, and the same in any crowd.

Every reduction here runs inside a bucket or over one row's buckets in order, so a row's numbers never depend on how
many rows there are. All functions expect rows padded by `padded`.
"""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

BUCKET = 32


def padded(logits: torch.Tensor) -> torch.Tensor:
    """`logits` [R, V] as float32, filled up with -inf to whole buckets. May share memory with `logits`."""
    missing = -logits.shape[1] % BUCKET
    single = logits.float()
    return F.pad(single, (0, missing), value=-torch.inf) if missing else single


def maxima(rows: torch.Tensor) -> torch.Tensor:
    """The largest value of each bucket, [R, B]. NaN wins."""
    return rows.view(len(rows), -1, BUCKET).amax(dim=-1)


def running_sums(rows: torch.Tensor) -> torch.Tensor:
    """float64 [R, B]: the sum of each row up to the end of each bucket."""
    return rows.view(len(rows), -1, BUCKET).sum(dim=-1).double().cumsum(dim=-1)


def argmax(rows: torch.Tensor, of_buckets: torch.Tensor) -> torch.Tensor:
    """The place of each row's largest value [R], from the `maxima` of its buckets."""
    bucket = of_buckets.argmax(dim=-1)
    return bucket * BUCKET + _buckets(rows, bucket.unsqueeze(1)).squeeze(1).argmax(dim=-1)


def best(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest values of each row and their places, both [R, count], the largest first.

    They lie in the `count` buckets with the largest maxima, so only those are looked at.
    """
    if rows.shape[1] <= count * BUCKET:
        places = _largest(rows, count)
    else:
        buckets = _largest(maxima(rows), count)
        found = _largest(_buckets(rows, buckets).flatten(1), count)
        places = buckets.gather(1, found // BUCKET) * BUCKET + found % BUCKET
    values, order = rows.gather(1, places).sort(dim=-1, descending=True)
    return values, places.gather(1, order)


def _largest(rows: torch.Tensor, count: int) -> torch.Tensor:
    """Places of the `count` largest values of each row, in no order [R, count]."""
    if rows.device.type != "cpu":
        return rows.topk(count, dim=-1, sorted=False).indices
    rest = rows.shape[1] - count  # numpy selects several times faster than torch on a processor
    return torch.from_numpy(np.argpartition(rows.numpy(), min(rest, rows.shape[1] - 1), axis=-1)[:, rest:])


def invert(weights: torch.Tensor, running: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Places [R] at which the running sum of `weights` passes `points` [R, 1] of its total.

    `running` are the weights' running sums. A place without weight is never returned unless the row has none at all.
    """
    target = points * running[:, -1:]
    bucket = torch.searchsorted(running, target, right=True)
    # Rounding may carry the point past the last weight; the last bucket that has any is meant then.
    bucket = torch.minimum(bucket, (running < running[:, -1:]).sum(dim=-1, keepdim=True))
    before = running.gather(1, (bucket - 1).clamp(min=0)).masked_fill(bucket == 0, 0.0)
    inside = _buckets(weights, bucket).squeeze(1)
    place = torch.searchsorted(inside.double().cumsum(dim=-1), target - before, right=True)
    last = BUCKET - 1 - (inside > 0).flip(-1).int().argmax(dim=-1, keepdim=True)
    return (bucket * BUCKET + torch.minimum(place, last)).squeeze(1)


def _buckets(rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Some buckets of each row: [R, N, BUCKET] for their `numbers` [R, N]. Copies whole buckets, which is fast."""
    num_rows, size = rows.shape
    first = torch.arange(num_rows, device=rows.device).unsqueeze(1) * (size // BUCKET)
    return rows.view(-1, BUCKET).index_select(0, (numbers + first).flatten()).view(num_rows, -1, BUCKET)
