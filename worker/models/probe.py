"""The probe: what a loaded model's attention layers look like, and whether paging changes what the model says.

A model may keep state between tokens in ways no configuration tells. So each is tried before it is served: a short
text, packed beside copies of itself that are cut in two at different places, must give the logits that transformers
itself gives for it. That takes three forward passes over a few tokens: start-up waits for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from worker.engine.ragged_batch import RaggedRow, build_batch
from worker.kernels.interface import AttentionKernel, LayerLayout, UnservedLayout
from worker.models.attention_hook import HOOK, attention_goes_to, options_of
from worker.models.refusal import ModelFails, ModelRefused

KNOWN_ARGUMENTS = frozenset({
    "scaling", "sliding_window", "softcap", "s_aux", "dropout", "is_causal",
    "position_ids", "use_cache", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict",
})  # fmt: skip
NUM_TOKENS = 4
CUTS = (1, 2, 3)  # one for each copy: the token right behind it feels the loss of any state but keys and values
TOLERANCES = {torch.float32: 2e-3}  # relative; sums in another order
ROUGH_TOLERANCE = 0.1  # of 16-bit and quantized models; a lost state changes logits by about their whole size


class ProbeTarget:
    """Attends over pages as the served model will, and notes each layer's shapes and arguments in its first pass."""

    def __init__(self, kernel: AttentionKernel, page_size: int, device: torch.device) -> None:
        self.layouts: list[LayerLayout] = []
        self.calls: list[dict[str, Any]] = []
        self._kernel = kernel
        self.page_size = page_size
        self._device = device
        self._layers: list[Any] = []  # the pages of each layer, made when it is first called
        self._num_called = 0
        self._plan: Any = None

    def begin(self, rows: list[RaggedRow]) -> dict[str, Any]:
        """The arguments of a forward pass that computes these rows."""
        batch = build_batch(rows, self.page_size, self._device)
        self._plan, self._num_called = self._kernel.plan(batch), 0
        return {"input_ids": batch.token_ids[None], "position_ids": batch.positions[None], "use_cache": False}

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: dict[str, Any]) -> torch.Tensor:
        if self._num_called == len(self._layers):
            self._note_layer(query, key, value, call)
        layer = self._layers[self._num_called]
        self._num_called += 1
        self._kernel.write(self._plan, layer, key, value)
        return self._kernel.attend(self._plan, query, layer, options_of(call))

    def _note_layer(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, call: dict[str, Any]) -> None:
        if not query.shape[0] == key.shape[0] == value.shape[0]:
            raise ModelRefused("its attention reads keys that are not its own tokens'")
        _check_arguments(call)
        layout = LayerLayout(key.shape[1], key.shape[2], value.shape[2], key.dtype)
        self.layouts.append(layout)
        self.calls.append(call)
        num_pages = len(CUTS) * -(-NUM_TOKENS // self.page_size)
        self._layers.append(self._kernel.new_pages(layout, num_pages))


def probe(network: Any, kernel: AttentionKernel, page_size: int) -> list[LayerLayout]:
    """The layout of each attention layer, in the order of their calls.

    Raises ModelRefused for a model we cannot serve: its attention asks for what no kernel does, or packed, cut and
    paged logits do not equal those of transformers' own attention. Raises UnservedLayout as the kernel does.
    """
    num_embeddings = network.get_input_embeddings().num_embeddings
    token_ids = [(place * 7919 + 31) % num_embeddings for place in range(NUM_TOKENS)]
    target = ProbeTarget(kernel, page_size, network.device)
    with _refusing(), torch.inference_mode():
        with attention_goes_to(target):
            found = _paged_logits(network, token_ids, target)
        expected = _own_logits(network, token_ids)
    _check_logits(network, found, expected)
    return target.layouts


def _paged_logits(network: Any, token_ids: list[int], target: ProbeTarget) -> torch.Tensor:
    """[copies, NUM_TOKENS, V] in two passes: every copy up to its cut, then the rest of each."""
    page_size = target.page_size
    pages = [range(copy, len(CUTS) * -(-NUM_TOKENS // page_size), len(CUTS)) for copy in range(len(CUTS))]
    parts = []
    for spans in ([(0, cut) for cut in CUTS], [(cut, NUM_TOKENS) for cut in CUTS]):
        rows = [
            RaggedRow(token_ids[start:stop], start, own, wants_all_logits=True)
            for (start, stop), own in zip(spans, pages, strict=True)
        ]
        logits = network(**target.begin(rows)).logits[0]
        if not target.calls:
            raise ModelRefused("its layers never call the exchanged attention")
        parts.append(logits.split([stop - start for start, stop in spans]))
    _check_windows(network.config.get_text_config(decoder=True), target.calls)
    return torch.stack([torch.cat(halves) for halves in zip(*parts, strict=True)]).float()


def _own_logits(network: Any, token_ids: list[int]) -> torch.Tensor:
    """[NUM_TOKENS, V] of transformers' own attention."""
    network.set_attn_implementation("eager")
    try:
        ids = torch.tensor([token_ids], device=network.device)
        logits: torch.Tensor = network(input_ids=ids, use_cache=False).logits[0]
    finally:
        network.set_attn_implementation(HOOK)
    return logits.float()


def _check_logits(network: Any, found: torch.Tensor, expected: torch.Tensor) -> None:
    errors = (found - expected).norm(dim=-1) / (expected - expected.mean(dim=-1, keepdim=True)).norm(dim=-1)
    dtype = next(network.parameters()).dtype
    tolerance = TOLERANCES.get(dtype, ROUGH_TOLERANCE)
    # In 16 bits a router may send single tokens elsewhere; a lost state spoils all those right behind a cut.
    behind_cuts = torch.stack([errors[copy, cut] for copy, cut in enumerate(CUTS)])
    error = errors.max().item() if dtype in TOLERANCES else behind_cuts.median().item()
    if not error <= tolerance:
        raise ModelRefused(f"it keeps state outside its attention: its logits change by {error:.0%} when paged")


@contextmanager
def _refusing() -> Iterator[None]:
    """A model that fails in the probe would fail every request: better now, with its own words."""
    try:
        yield
    except (ModelRefused, UnservedLayout):
        raise
    except Exception as error:
        raise ModelFails(f"it fails when tried: {type(error).__name__}: {error}") from error


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
