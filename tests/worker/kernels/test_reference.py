"""Reference attention against attention written out for one query at a time."""

import itertools

import pytest
import torch

from worker.engine.ragged_batch import RaggedRow, build_batch
from worker.kernels.dispatch import attention_kernel
from worker.kernels.interface import AttentionOptions

CPU = torch.device("cpu")
KV_HEADS, GROUP, KEY_SIZE, VALUE_SIZE = 2, 3, 8, 5
HEADS = KV_HEADS * GROUP


def attend_one(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """[HEADS, VALUE_SIZE] of the last token of a sequence: `query` [HEADS, KEY_SIZE], `keys` [L, KV_HEADS, ...]."""
    window = options.sliding_window or len(keys)
    keys, values = keys[-window:].double(), values[-window:].double()
    output = []
    for head in range(HEADS):
        scores = keys[:, head // GROUP] @ query[head].double() * (options.scaling or KEY_SIZE**-0.5)
        if options.softcap is not None:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        weights = scores.exp()
        sink = 0.0 if options.sinks is None else options.sinks[head].double().exp()
        output.append(weights @ values[:, head // GROUP] / (weights.sum() + sink))
    return torch.stack(output)


OPTIONS = {
    "plain": AttentionOptions(),
    "scaled": AttentionOptions(scaling=0.7),
    "window": AttentionOptions(sliding_window=5),
    "window of one": AttentionOptions(sliding_window=1),
    "wide window": AttentionOptions(sliding_window=1000),
    "softcap": AttentionOptions(softcap=1.5, sliding_window=7),
    "sinks": AttentionOptions(sinks=torch.linspace(-1, 2, HEADS)),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("page_size", [1, 4, 16, 32])
def test_decodes_and_chunks_of_all_lengths_together_are_attended_exactly(
    options: AttentionOptions, page_size: int
) -> None:
    generator = torch.Generator().manual_seed(1)
    lengths = [(0, 1), (0, 9), (8, 9), (16, 17), (30, 47), (3, 4), (62, 63), (40, 41)]  # (computed before, after)
    keys, values, queries = (
        [torch.randn(stop, heads, size, generator=generator) for _, stop in lengths]
        for heads, size in ((KV_HEADS, KEY_SIZE), (KV_HEADS, VALUE_SIZE), (HEADS, KEY_SIZE))
    )
    page_numbers = iter(torch.randperm(400, generator=generator).tolist())
    pages = [list(itertools.islice(page_numbers, -(-stop // page_size))) for _, stop in lengths]
    # Whatever free pages hold must not matter: a large number would show, were it ever weighed.
    cache = (
        torch.full((400, page_size, KV_HEADS, KEY_SIZE), 1e4),
        torch.full((400, page_size, KV_HEADS, VALUE_SIZE), 1e4),
    )
    kernel = attention_kernel(CPU, page_size)
    earlier = [(index, 0, start) for index, (start, _) in enumerate(lengths) if start]
    current = [(index, start, stop) for index, (start, stop) in enumerate(lengths)]
    for spans in (earlier, current):
        rows = [RaggedRow([0] * (stop - start), start, pages[index]) for index, start, stop in spans]
        plan = kernel.plan(build_batch(rows, page_size, CPU))
        new = [torch.cat([of[index][start:stop] for index, start, stop in spans]) for of in (keys, values)]
        kernel.write(plan, cache, *new)
    query = torch.cat([queries[index][start:stop] for index, start, stop in current])
    output = kernel.attend(plan, query, cache, options)
    expected = [
        attend_one(queries[index][place], keys[index][: place + 1], values[index][: place + 1], options)
        for index, start, stop in current
        for place in range(start, stop)
    ]
    torch.testing.assert_close(output.double(), torch.stack(expected), atol=2e-5, rtol=1e-4)


def test_a_neighbour_full_of_nan_does_no_harm() -> None:
    page_size = 4
    cache = (torch.zeros(8, page_size, KV_HEADS, KEY_SIZE), torch.zeros(8, page_size, KV_HEADS, VALUE_SIZE))
    kernel = attention_kernel(CPU, page_size)
    rows = [RaggedRow([0], 20, [0, 1, 2, 3, 4, 5]), RaggedRow([0], 17, [6, 7, 6, 7, 6])]
    plan = kernel.plan(build_batch(rows, page_size, CPU))
    for tensor in cache:
        tensor[:6] = torch.nan
    kernel.write(plan, cache, torch.ones(2, KV_HEADS, KEY_SIZE), torch.ones(2, KV_HEADS, VALUE_SIZE))
    output = kernel.attend(plan, torch.ones(2, HEADS, KEY_SIZE), cache, AttentionOptions())
    assert output[0].isnan().all()
    assert output[1].isfinite().all()
