"""A RaggedBatch: all tokens of all sequences of one step in one row, as the model and the kernels read it."""

from array import array
from collections.abc import Sequence as ListLike
from dataclasses import dataclass
from itertools import accumulate

import torch

from worker.engine.sequence import Span


@dataclass(frozen=True, eq=False)
class RaggedBatch:
    """T tokens of S sequences, grouped by sequence; sequence s owns rows query_offsets[s] to query_offsets[s + 1].

    Tensors are int64 on the model's device; lengths that steer control flow stay on the host.
    """

    token_ids: torch.Tensor  # [T]
    positions: torch.Tensor  # [T] place of each token in its sequence
    slots: torch.Tensor  # [T] where each token's keys and values are written: page * page_size + place in the page
    logit_rows: torch.Tensor  # [R] rows whose logits are wanted
    page_table: torch.Tensor  # [S, P] pages of each sequence, padded with its own last page
    query_offsets: tuple[int, ...]  # S + 1
    kv_lengths: tuple[int, ...]  # S; tokens of each sequence whose keys exist once this batch is written
    page_size: int


@dataclass(frozen=True, slots=True)
class RaggedRow:
    """One sequence's part of a batch: `token_ids` at places `start` and on, with keys and values in `pages`."""

    token_ids: ListLike[int]
    start: int
    pages: ListLike[int]
    wants_all_logits: bool = False
    wants_last_logits: bool = False


def batch_of_spans(spans: ListLike[Span], page_size: int, device: torch.device) -> RaggedBatch:
    """The batch that computes `spans`, with logits for the last row of each span that reaches its sequence's end.

    A sequence that wants its prompt's logits gets those of all rows.
    """
    rows = [
        RaggedRow(
            span.sequence.token_ids[span.start : span.stop],
            span.start,
            span.sequence.pages,
            wants_all_logits=span.sequence.wants_prompt_logits,
            wants_last_logits=span.needs_logits,
        )
        for span in spans
    ]
    return build_batch(rows, page_size, device)


def build_batch(rows: ListLike[RaggedRow], page_size: int, device: torch.device) -> RaggedBatch:
    """Lays the rows side by side. Raises ValueError when there are none."""
    if not rows:
        raise ValueError("a batch needs at least one sequence")
    offsets = tuple(accumulate((len(row.token_ids) for row in rows), initial=0))
    kv_lengths = tuple(row.start + len(row.token_ids) for row in rows)
    width = max(-(-length // page_size) for length in kv_lengths)
    columns = tuple(array("q") for _ in range(5))
    ids, places, targets, logits_at, table = columns
    for row, offset in zip(rows, offsets, strict=False):
        ids.extend(row.token_ids)
        places.extend(range(row.start, row.start + len(row.token_ids)))
        targets.extend(_slots(row, page_size))
        logits_at.extend(_logit_rows(row, offset))
        table.fromlist(_padded(row.pages, width))
    # One copy to the device for all of them: a launch costs more than these few bytes.
    flat = torch.frombuffer(bytearray().join(columns), dtype=torch.int64).to(device)
    token_ids, positions, slots, logit_rows, page_table = torch.split(flat, [len(column) for column in columns])
    return RaggedBatch(
        token_ids, positions, slots, logit_rows, page_table.view(len(rows), width), offsets, kv_lengths, page_size
    )


def _slots(row: RaggedRow, page_size: int) -> list[int]:
    places = range(row.start, row.start + len(row.token_ids))
    return [row.pages[place // page_size] * page_size + place % page_size for place in places]


def _logit_rows(row: RaggedRow, offset: int) -> range:
    stop = offset + len(row.token_ids)
    if row.wants_all_logits:
        return range(offset, stop)
    return range(stop - 1, stop) if row.wants_last_logits else range(0)


def _padded(pages: ListLike[int], width: int) -> list[int]:
    # Its own page as padding: masked slots are still multiplied by zero, which a neighbour's NaN would survive.
    return [*pages[:width], *[pages[0]] * (width - len(pages))]
