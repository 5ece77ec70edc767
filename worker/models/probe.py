"""The probe: what a loaded model's attention layers look like, and whether paging changes what the model says.

A model may keep state between tokens in ways no configuration tells. So each is tried before it is served: two short
sequences, packed and cut into chunks, must give the logits that transformers itself gives for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from worker.engine.ragged_batch import RaggedRow, build_batch
from worker.kernels.interface import AttentionKernel
from worker.models.attention_hook import HOOK, PagedTarget, attention_goes_to
from worker.models.kv_pool import KVPool, LayerLayout
from worker.models.refusal import ModelRefused

KNOWN_ARGUMENTS = frozenset({
    "scaling", "sliding_window", "softcap", "s_aux", "dropout", "is_causal",
    "position_ids", "use_cache", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict",
})  # fmt: skip
# Where the steps cut the two sequences. Most tokens go alone: those feel the loss of any other state.
CUTS = ((0, 2, 5, 6, 7, 8, 9, 10, 11), (0, 3, 4, 5, 6, 7, 8, 9, 10))
TOLERANCES = {torch.float32: 2e-3}  # relative; sums in another order
ROUGH_TOLERANCE = 0.1  # of 16-bit and quantized models; a lost state changes logits by about their whole size


class LayerRecorder:
    """Notes each attention call's shapes and arguments instead of computing it."""

    def __init__(self) -> None:
        self.layouts: list[LayerLayout] = []
        self.calls: list[dict[str, Any]] = []

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: dict[str, Any]) -> torch.Tensor:
        if not query.shape[0] == key.shape[0] == value.shape[0]:
            raise ModelRefused("its attention reads keys that are not its own tokens'")
        self.layouts.append(LayerLayout(key.shape[1], key.shape[2], value.shape[2], key.dtype))
        self.calls.append(call)
        return query.new_zeros(*query.shape[:2], value.shape[2])


def record_layers(network: Any, device: torch.device) -> LayerRecorder:
    """Runs a few tokens through `network` with attention recorded. Raises ModelRefused for a call we cannot serve."""
    recorder = LayerRecorder()
    token_ids = torch.zeros(1, 3, dtype=torch.int64, device=device)
    positions = torch.arange(3, device=device).unsqueeze(0)
    with _refusing(), torch.inference_mode(), attention_goes_to(recorder):
        network(input_ids=token_ids, position_ids=positions, use_cache=False)
    if not recorder.calls:
        raise ModelRefused("its layers never call the exchanged attention")
    for call in recorder.calls:
        _check_arguments(call)
    _check_windows(network.config.get_text_config(decoder=True), recorder.calls)
    return recorder


def check_logits(network: Any, layouts: list[LayerLayout], kernel: AttentionKernel, page_size: int) -> None:
    """Raises ModelRefused unless packed, chunked and paged logits equal those of transformers' own attention."""
    device = network.get_input_embeddings().weight.device
    sequences = _sequences(network.get_input_embeddings().num_embeddings)
    with _refusing(), torch.inference_mode():
        expected = _own_logits(network, sequences, device)
        found = _paged_logits(network, sequences, layouts, kernel, page_size)
    errors = (found - expected).norm(dim=-1) / (expected - expected.mean(dim=-1, keepdim=True)).norm(dim=-1)
    dtype = next(network.parameters()).dtype
    tolerance = TOLERANCES.get(dtype, ROUGH_TOLERANCE)
    # In 16 bits a router may send single tokens elsewhere; a lost state spoils most of them.
    error = errors.max().item() if dtype in TOLERANCES else errors.median().item()
    if not error <= tolerance:
        raise ModelRefused(f"it keeps state outside its attention: its logits change by {error:.0%} when paged")


@contextmanager
def _refusing() -> Iterator[None]:
    """A model that fails in the probe would fail every request: better now, with its own words."""
    try:
        yield
    except ModelRefused:
        raise
    except Exception as error:
        raise ModelRefused(f"it fails when tried: {type(error).__name__}: {error}") from error


def _check_arguments(call: dict[str, Any]) -> None:
    unknown = sorted(name for name, value in call.items() if value is not None and name not in KNOWN_ARGUMENTS)
    if unknown:
        raise ModelRefused(f"its attention depends on {', '.join(unknown)}, which is not served")
    if not call["is_causal"]:
        raise ModelRefused("its attention also looks ahead")


def _check_windows(text_config: Any, calls: list[dict[str, Any]]) -> None:
    """Raises ModelRefused when sliding windows are declared that the attention calls do not carry.

    Such a model relies on a dense mask, which is not built here; the probe is shorter than most windows and would
    not notice.
    """
    window = getattr(text_config, "sliding_window", None)
    types = getattr(text_config, "layer_types", None)
    if window is None or not (types or getattr(text_config, "use_sliding_window", True)):
        return
    if types is not None and len(types) == len(calls):
        is_wrong = any(
            (kind == "sliding_attention") != (call.get("sliding_window") is not None)
            for kind, call in zip(types, calls, strict=True)
        )
    else:
        is_wrong = all(call.get("sliding_window") is None for call in calls)
    if is_wrong:
        raise ModelRefused("its sliding windows do not reach the attention function")


def _sequences(vocab_size: int) -> list[list[int]]:
    return [[(place * 7919 + 31 * cuts[-1]) % vocab_size for place in range(cuts[-1])] for cuts in CUTS]


def _own_logits(network: Any, sequences: list[list[int]], device: torch.device) -> torch.Tensor:
    network.set_attn_implementation("eager")
    try:
        rows = [network(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0] for ids in sequences]
    finally:
        network.set_attn_implementation(HOOK)
    return torch.cat(rows).float()


def _paged_logits(
    network: Any, sequences: list[list[int]], layouts: list[LayerLayout], kernel: AttentionKernel, page_size: int
) -> torch.Tensor:
    device = network.get_input_embeddings().weight.device
    pages_each = -(-len(sequences[0]) // page_size)
    pool = KVPool(layouts, 2 * pages_each, page_size, device)
    found: list[list[torch.Tensor]] = [[], []]
    for step in zip(*(pairwise(cuts) for cuts in CUTS), strict=True):
        rows = [
            RaggedRow(token_ids[start:stop], start, range(which, 2 * pages_each, 2), wants_all_logits=True)
            for which, (token_ids, (start, stop)) in enumerate(zip(sequences, step, strict=True))
        ]
        batch = build_batch(rows, page_size, device)
        with attention_goes_to(PagedTarget(kernel, kernel.plan(batch), pool)):
            logits = network(
                input_ids=batch.token_ids[None], position_ids=batch.positions[None], use_cache=False
            ).logits
        for parts, part in zip(found, logits[0].split([stop - start for start, stop in step]), strict=True):
            parts.append(part)
    return torch.cat([*found[0], *found[1]]).float()
