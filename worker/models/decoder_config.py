"""Which models the lean decoder computes, and what it needs to know of them.

Everything here is checked, nothing assumed: a model with one trait unknown to this file goes the generic path.
"""

from dataclasses import dataclass
from typing import Any

import torch

LENGTH_INDEPENDENT_ROPE = frozenset({"default", "linear", "llama3", "yarn"})
MAX_HEAD_SIZE = 256

# What transformers' code of these families reads; a field it reads and we do not know would change the numbers.
_COMMON = frozenset({
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps", "tie_word_embeddings", "rope_parameters",
})  # fmt: skip
_WITHOUT_EFFECT = frozenset({
    "max_position_embeddings", "initializer_range", "use_cache", "pretraining_tp", "attention_dropout",
    "max_window_layers", "no_rope_layer_interval", "bos_token_id", "eos_token_id", "pad_token_id",
})  # fmt: skip
_WINDOWED = frozenset({"use_sliding_window", "sliding_window", "layer_types"})
FAMILIES: dict[str, frozenset[str]] = {
    "llama": frozenset({"attention_bias", "mlp_bias"}),
    "mistral": frozenset({"sliding_window"}),
    "qwen2": _WINDOWED,
    "qwen3": _WINDOWED | {"attention_bias"},
    "smollm3": _WINDOWED | {"attention_bias", "mlp_bias", "no_rope_layers"},
}


class NotLean(Exception):
    """The lean decoder does not compute this model; the message says why."""


@dataclass(frozen=True)
class DecoderConfig:
    """The shape of a Llama-like decoder. `windows` and `has_rope` have one entry for each layer."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    norm_epsilon: float
    windows: tuple[int, ...]  # 0: all
    has_rope: tuple[bool, ...]
    has_qkv_bias: bool
    has_out_bias: bool
    has_mlp_bias: bool
    has_head_norms: bool
    is_tied: bool  # the head shares the embedding's weights

    @property
    def num_layers(self) -> int:
        return len(self.windows)


def decoder_config(config: Any) -> DecoderConfig:
    """What transformers' `config` says, for the decoder. Raises NotLean."""
    family = config.model_type
    if family not in FAMILIES:
        raise NotLean(f"models of type {family} are not among its families")
    _check_fields(config, FAMILIES[family])
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    num_kv_heads = config.num_key_value_heads or config.num_attention_heads
    if head_size > MAX_HEAD_SIZE or head_size % 2 or config.num_attention_heads % num_kv_heads:
        raise NotLean(f"heads of {head_size}, {config.num_attention_heads} over {num_kv_heads}")
    has_attention_bias = bool(getattr(config, "attention_bias", False))
    return DecoderConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_attention_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        norm_epsilon=config.rms_norm_eps,
        windows=_windows(config),
        has_rope=tuple(bool(has) for has in _per_layer(config, "no_rope_layers", default=1)),
        has_qkv_bias=has_attention_bias or family == "qwen2",
        has_out_bias=has_attention_bias,
        has_mlp_bias=bool(getattr(config, "mlp_bias", False)),
        has_head_norms=family == "qwen3",
        is_tied=bool(config.tie_word_embeddings),
    )


def rotary_frequencies(config: Any) -> tuple[torch.Tensor, float]:
    """(radians a position for each pair of a head's elements [head size / 2], factor of cosines and sines).

    Raises NotLean for embeddings that change with the length of the sequence.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415  not needed by every worker

    rope = config.rope_parameters or {}
    kind = rope.get("rope_type", "default")
    if kind not in LENGTH_INDEPENDENT_ROPE:
        raise NotLean(f"rotary embeddings of the kind {kind}")
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if kind == "default":
        exponents = torch.arange(0, head_size, 2, dtype=torch.float) / head_size
        return 1.0 / (rope["rope_theta"] ** exponents), 1.0
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    if len(frequencies) != head_size // 2:
        raise NotLean(f"rotary embeddings of {2 * len(frequencies)} of a head's {head_size} elements")
    return frequencies, factor


def _check_fields(config: Any, known: frozenset[str]) -> None:
    """A field that this file does not know of must have the value that its family usually has."""
    if getattr(config, "quantization_config", None) is not None:
        raise NotLean("its weights are quantized")
    if config.hidden_act != "silu":
        raise NotLean(f"activation {config.hidden_act}")
    from transformers import PreTrainedConfig  # noqa: PLC0415  heavy, and at hand by now

    usual = type(config)()
    own = vars(usual).keys() - vars(PreTrainedConfig()).keys() - _COMMON - _WITHOUT_EFFECT - known
    for name in sorted(own):
        if not name.startswith("_") and getattr(config, name) != getattr(usual, name):
            raise NotLean(f"{name}={getattr(config, name)!r} is unknown to it")


def _windows(config: Any) -> tuple[int, ...]:
    window: int | None = getattr(config, "sliding_window", None)
    num_layers: int = config.num_hidden_layers
    if config.model_type == "llama" or window is None:
        return (0,) * num_layers
    if config.model_type == "mistral":
        return (window,) * num_layers
    if config.model_type == "smollm3" and not config.use_sliding_window:
        return (0,) * num_layers
    kinds = _per_layer(config, "layer_types", default="full_attention")
    return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)


def _per_layer(config: Any, name: str, default: Any) -> list[Any]:
    values = getattr(config, name, None)
    if values is None:
        return [default] * config.num_hidden_layers
    if len(values) < config.num_hidden_layers:
        raise NotLean(f"{name} has {len(values)} entries for {config.num_hidden_layers} layers")
    return list(values[: config.num_hidden_layers])
