"""Which models this path cannot serve, told from their configuration before any weights are read."""

from typing import Any

SERVED_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})


class ModelRefused(ValueError):
    """This model cannot be served; the message names it and says why."""


class ModelFails(ModelRefused):
    """Its own code raises when tried."""


def check_config(name: str, config: Any, model_class: Any) -> None:
    """Raises ModelRefused unless `model_class` may be a decoder whose only cross-token state is attention."""
    text_config = config.get_text_config(decoder=True)
    kind = f"{name} ({model_class.__name__})"
    if getattr(config, "is_encoder_decoder", False) or getattr(text_config, "add_cross_attention", False):
        raise ModelRefused(f"{kind} reads an encoder through cross attention; only decoders are served")
    if getattr(model_class, "_is_stateful", False):
        raise ModelRefused(f"{kind} keeps a recurrent state; only attention over paged keys and values is served")
    foreign = set(getattr(text_config, "layer_types", None) or ()) - SERVED_LAYER_TYPES
    if foreign:
        raise ModelRefused(f"{kind} has layers of the kind {', '.join(sorted(foreign))}, which are not served")
    if not getattr(model_class, "_supports_attention_backend", False):
        raise ModelRefused(f"{kind} does not let its attention be exchanged (no attention backend support)")


def positions_limit(config: Any) -> int | None:
    """The longest context the model's positions allow, or None when its configuration does not say.

    Some rotary embeddings change with the longest sequence in a batch. Within their original length they do not, and
    an answer must not depend on its neighbours, so such models are limited to that.
    """
    text_config = config.get_text_config(decoder=True)
    limit: int | None = getattr(text_config, "max_position_embeddings", None)
    for rope in _rope_parameters(text_config):
        if rope.get("rope_type") in LENGTH_DEPENDENT_ROPE:
            original = rope.get("original_max_position_embeddings") or getattr(
                text_config, "original_max_position_embeddings", None
            )
            limit = min(filter(None, (limit, original)), default=None)
    return limit


def _rope_parameters(text_config: Any) -> list[dict[str, Any]]:
    """The rope parameters, one entry for each kind of layer that has its own."""
    parameters = getattr(text_config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return nested or [parameters]
