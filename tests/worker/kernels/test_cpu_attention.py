"""Ragged paged attention against float64, for random shapes, pages and batches, over poisoned pages."""

import itertools
import random
from dataclasses import dataclass

import pytest
import torch

from tests.worker.kernels.native import ISA_NAMES, batch_of, exact_attention, guarded_copy, kernels_of, offsets_of
from worker.kernels.cpu.attention import PagedLayer, PageShape
from worker.kernels.interface import AttentionOptions

HEAD_SIZES = (64, 80, 96, 128, 256, 8, 20)
PAGE_SIZES = (1, 7, 16, 32, 33, 64)
LENGTHS = (1, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 200, 300)
NUM_CASES = 36


@dataclass
class Sequences:
    """Keys, values and queries of some sequences, and the places computed before and in the batch at hand."""

    keys: list[torch.Tensor]  # [L, kv heads, key size]
    values: list[torch.Tensor]
    queries: list[torch.Tensor]  # [L, heads, key size]
    spans: list[tuple[int, int]]


def random_sequences(dice: random.Random, shape: PageShape, heads: int) -> Sequences:
    lengths = [dice.choice(LENGTHS) for _ in range(5)]
    spans = [(max(0, length - dice.choice([1, 1, 1, 4, 17, length])), length) for length in lengths]
    queries, keys, values = (
        [torch.randn(length, count, size) for length in lengths]
        for count, size in (
            (heads, shape.key_size),
            (shape.kv_heads, shape.key_size),
            (shape.kv_heads, shape.value_size),
        )
    )
    # What the pages can hold, so that the kernel's sums are tested apart from the rounding.
    keys, values = ([each.to(shape.dtype).float() for each in side] for side in (keys, values))
    return Sequences(keys, values, queries, spans)


def random_pages(dice: random.Random, lengths: list[int], page_size: int, num_pages: int) -> list[list[int]]:
    numbers = iter(dice.sample(range(num_pages), num_pages))
    return [list(itertools.islice(numbers, -(-length // page_size))) for length in lengths]


def poisoned_layer(isa: str, num_threads: int, shape: PageShape, num_pages: int) -> PagedLayer:
    layer = PagedLayer(kernels_of(isa, num_threads), shape, num_pages)
    layer.keys.fill_(255)  # NaN in both types
    layer.values.fill_(255)
    return layer


def attend(layer: PagedLayer, sequences: Sequences, pages: list[list[int]], page_size: int,
           options: AttentionOptions) -> torch.Tensor:  # fmt: skip
    """Writes what came before the spans, then the spans, and attends over these."""
    before = [(0, start) for start, _ in sequences.spans]
    for spans in (before, sequences.spans):
        kept = [index for index, (start, stop) in enumerate(spans) if stop > start]
        if kept:
            batch = batch_of([spans[index] for index in kept], [pages[index] for index in kept], page_size)
            sides = (sequences.keys, sequences.values)
            layer.write(batch, *(torch.cat([side[i][slice(*spans[i])] for i in kept]) for side in sides))
    query = torch.cat([rows[slice(*span)] for rows, span in zip(sequences.queries, sequences.spans, strict=True)])
    return layer.attend(batch_of(sequences.spans, pages, page_size), guarded_copy(query), options)


def expected_output(sequences: Sequences, options: AttentionOptions) -> torch.Tensor:
    sides = (sequences.queries, sequences.keys, sequences.values, sequences.spans)
    return torch.cat([
        exact_attention(queries[start:stop], keys[:stop], values[:stop], start, options)
        for queries, keys, values, (start, stop) in zip(*sides, strict=True)
    ])  # fmt: skip


def random_options(dice: random.Random, heads: int) -> AttentionOptions:
    return AttentionOptions(
        scaling=dice.choice([None, 0.3]),
        sliding_window=dice.choice([None, None, 1, 5, 16, 100, 1000]),
        softcap=dice.choice([None, None, 2.0]),
        sinks=dice.choice([None, None, torch.linspace(-1, 2, heads)]),
    )


@pytest.mark.parametrize("isa", ISA_NAMES)
@pytest.mark.parametrize("case", range(NUM_CASES))
def test_given_any_mix_of_sequences_then_attention_is_exact(isa: str, case: int) -> None:
    dice = random.Random(case)
    torch.manual_seed(case)
    size, page_size = HEAD_SIZES[case % len(HEAD_SIZES)], PAGE_SIZES[case % len(PAGE_SIZES)]
    dtype = (torch.float32, torch.bfloat16)[case % 2]
    shape = PageShape(page_size, dice.randint(1, 3), size, dice.choice([size, 24]), dtype)
    heads = shape.kv_heads * (case % 8 + 1)
    sequences, options = random_sequences(dice, shape, heads), random_options(dice, heads)
    num_pages = 5 * -(-300 // page_size)
    pages = random_pages(dice, [stop for _, stop in sequences.spans], page_size, num_pages)
    layer = poisoned_layer(isa, 2, shape, num_pages)
    output = attend(layer, sequences, pages, page_size, options)
    torch.testing.assert_close(output.double(), expected_output(sequences, options), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("isa", ISA_NAMES)
@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_given_other_pages_threads_and_neighbours_then_a_token_has_the_same_bits(
    isa: str, window: int | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(11)
    length, heads = 300, 6
    one = Sequences(
        [torch.randn(length, 2, 64)], [torch.randn(length, 2, 64)], [torch.randn(length, heads, 64)], [(0, length)]
    )
    options = AttentionOptions(sliding_window=window)
    whole: torch.Tensor | None = None
    for num_threads, page_size in ((1, 32), (2, 1), (5, 16), (2, 48)):
        dice = random.Random(page_size)
        layer = poisoned_layer(isa, num_threads, PageShape(page_size, 2, 64, 64, dtype), 1008 // page_size)
        pages = random_pages(dice, [length] * 3, page_size, 1008 // page_size)
        output = attend(layer, one, pages[:1], page_size, options)
        whole = output if whole is None else whole
        assert torch.equal(output, whole)
        for start, stop in ((299, 300), (280, 300), (3, 140), (126, 130)):
            keys, values, queries = ([side[0][:stop]] * 3 for side in (one.keys, one.values, one.queries))
            crowd = Sequences(keys, values, queries, [(0, stop), (start, stop), (stop - 1, stop)])
            output = attend(layer, crowd, pages, page_size, options)
            offset = offsets_of(crowd.spans)[1]
            assert torch.equal(output[offset : offset + stop - start], whole[start:stop])


@pytest.mark.parametrize("isa", ISA_NAMES)
def test_given_a_neighbour_full_of_nan_then_it_does_no_harm(isa: str) -> None:
    shape = PageShape(32, 1, 64, 64, torch.bfloat16)
    layer = PagedLayer(kernels_of(isa), shape, 4)
    batch = batch_of([(0, 40), (0, 40)], [[0, 1], [2, 3]], 32)
    ones = torch.ones(80, 1, 64)
    poisoned = ones.clone()
    poisoned[:40] = torch.nan
    layer.write(batch, poisoned, poisoned)
    output = layer.attend(batch, torch.ones(80, 2, 64), AttentionOptions())
    assert output[:40].isnan().all()
    assert torch.equal(output[40:], torch.ones(40, 2, 64))


@pytest.mark.parametrize("isa", ISA_NAMES)
def test_given_scrubbed_pages_then_they_hold_zeros_and_the_others_what_they_held(isa: str) -> None:
    layer = poisoned_layer(isa, 1, PageShape(32, 1, 64, 64, torch.bfloat16), 4)
    layer.scrub([1, 3])
    assert [page.unique().tolist() for page in layer.keys] == [[255], [0], [255], [0]]
    assert [page.unique().tolist() for page in layer.values] == [[255], [0], [255], [0]]
