"""Reference attention in plain torch: the truth for tests, and the fallback on every device.

Sequences with one new token are attended together, padded to the longest of their group; groups are made by length,
a factor of two apart, so that one long sequence does not make all others wide. Sequences with more new tokens are
attended one by one.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812

from worker.engine.ragged_batch import RaggedBatch
from worker.kernels.interface import AttentionOptions, LayerLayout

TensorPages = tuple[torch.Tensor, torch.Tensor]  # keys and values of a layer: [pages, page size, kv heads, size] each


@dataclass(frozen=True, eq=False)
class Group:
    """B sequences attended together: N query rows of each, over the L slots of their gathered pages."""

    rows: torch.Tensor  # [B * N] the rows of the batch
    pages: torch.Tensor  # [B * L / page_size]
    query_places: torch.Tensor  # [B, N] place of each query row in its sequence
    num_slots: int  # L
    _masks: dict[int | None, torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> torch.Tensor:
        """Which slots each query sees, bool [B, 1, N, L]; made once a step for each window."""
        if window is not None and window >= self.num_slots:
            window = None
        if window not in self._masks:
            slots = torch.arange(self.num_slots, device=self.rows.device)
            places = self.query_places[:, None, :, None]
            seen = slots <= places
            self._masks[window] = seen if window is None else seen & (slots > places - window)
        return self._masks[window]


@dataclass(frozen=True, eq=False)
class ReferencePlan:
    slots: torch.Tensor  # [T]
    groups: list[Group]


class ReferenceAttention:
    """See AttentionKernel. Pages of any type and any sizes, on any device."""

    def __init__(self, page_size: int, device: torch.device) -> None:
        self._page_size = page_size
        self._device = device

    def bytes_per_page(self, layout: LayerLayout) -> int:
        sizes = layout.key_size + layout.value_size
        return self._page_size * layout.num_heads * sizes * layout.dtype.itemsize

    def new_pages(self, layout: LayerLayout, num_pages: int) -> TensorPages:
        keys, values = (
            torch.zeros(num_pages, self._page_size, layout.num_heads, size, dtype=layout.dtype, device=self._device)
            for size in (layout.key_size, layout.value_size)
        )
        return keys, values

    def scrub(self, layer: TensorPages, pages: Sequence[int]) -> None:
        for stored in layer:
            stored[list(pages)] = 0

    def plan(self, batch: RaggedBatch) -> ReferencePlan:
        alone: list[list[int]] = []
        together: defaultdict[int, list[int]] = defaultdict(list)
        for index, kv_length in enumerate(batch.kv_lengths):
            if batch.query_offsets[index + 1] - batch.query_offsets[index] == 1:
                together[_num_pages(batch, kv_length).bit_length()].append(index)
            else:
                alone.append([index])
        return ReferencePlan(batch.slots, [_group(batch, members) for members in (*together.values(), *alone)])

    def write(self, plan: ReferencePlan, layer: TensorPages, keys: torch.Tensor, values: torch.Tensor) -> None:
        for stored, rows in zip(layer, (keys, values), strict=True):
            stored.flatten(0, 1).index_copy_(0, plan.slots, rows)

    def attend(
        self, plan: ReferencePlan, query: torch.Tensor, layer: TensorPages, options: AttentionOptions
    ) -> torch.Tensor:
        output = query.new_empty(*query.shape[:2], layer[1].shape[-1])
        for group in plan.groups:
            keys, values = (_gather(stored, group) for stored in layer)
            rows = query.index_select(0, group.rows)
            output.index_copy_(0, group.rows, _attend_group(rows, keys, values, group, options))
        return output


def _num_pages(batch: RaggedBatch, kv_length: int) -> int:
    return -(-kv_length // batch.page_size)


def _group(batch: RaggedBatch, members: list[int]) -> Group:
    """The group of these sequences of the batch, which all have the same number of new tokens."""
    width = max(_num_pages(batch, batch.kv_lengths[index]) for index in members)
    device = batch.slots.device
    spans = [range(batch.query_offsets[index], batch.query_offsets[index + 1]) for index in members]
    rows = torch.tensor([row for span in spans for row in span], device=device)
    pages = batch.page_table[torch.tensor(members, device=device), :width]
    places = batch.positions[rows].view(len(members), -1)
    return Group(rows, pages.flatten(), places, width * batch.page_size)


def _gather(stored: torch.Tensor, group: Group) -> torch.Tensor:
    """[B, kv heads, L, size] of the group's pages. Whole pages are copied as rows: much faster than slots."""
    num_pages, _, num_heads, size = stored.shape
    gathered = stored.view(num_pages, -1).index_select(0, group.pages)
    return gathered.view(-1, group.num_slots, num_heads, size).transpose(1, 2)


def _attend_group(
    rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: Group, options: AttentionOptions
) -> torch.Tensor:
    """[B * N, query heads, value size] from `rows` [B * N, query heads, key size]."""
    num_sequences, num_kv_heads = keys.shape[:2]
    num_rows, num_heads, size = rows.shape
    mask = group.mask(options.sliding_window)
    query = rows.view(num_sequences, -1, num_heads, size).transpose(1, 2)
    if options.softcap is not None or options.sinks is not None:
        attended = _explicit_attention(query, keys, values, mask, options)
    elif num_rows == num_sequences:
        # One query row each: the query heads of a kv head stand in as rows, so that keys need not be repeated.
        folded = query.reshape(num_sequences, num_kv_heads, -1, size)
        attended = F.scaled_dot_product_attention(folded, keys, values, mask, scale=options.scaling)
    else:
        attended = F.scaled_dot_product_attention(query, keys, values, mask, scale=options.scaling, enable_gqa=True)
    by_head = attended.reshape(num_sequences, num_heads, -1, values.shape[-1])
    return by_head.transpose(1, 2).reshape(num_rows, num_heads, -1)


def _explicit_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """Attention written out, for what scaled_dot_product_attention lacks: soft caps and sinks."""
    num_heads = query.shape[1]
    keys, values = (tensor.repeat_interleave(num_heads // tensor.shape[1], dim=1) for tensor in (keys, values))
    scaling = query.shape[-1] ** -0.5 if options.scaling is None else options.scaling
    scores = query @ keys.transpose(2, 3) * scaling
    if options.softcap is not None:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    scores = scores.float().masked_fill(~mask, -torch.inf)
    if options.sinks is not None:
        sinks = options.sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
    else:
        weights = scores.softmax(dim=-1)
    return weights.to(values.dtype) @ values
