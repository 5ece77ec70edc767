"""Whether what the server sends is what the official SDK's types declare: strictly, and not a field more."""

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

from openai.types import Completion
from pydantic import BaseModel, TypeAdapter

# Fields beyond OpenAI's that our answers have, by the name of the type.
DOCUMENTED = {
    "Model": {"root", "max_model_len"},
    "Completion": {"service_tier"},
    "ChoiceDelta": {"reasoning_content"},
    "ChatCompletionMessage": {"reasoning_content"},
}


def assert_valid(kind: Any, data: Any) -> None:
    """`data` is parsed JSON, `kind` a type of the SDK or a union of some."""
    parsed = _adapter(kind).validate_json(json.dumps(_as_declared(kind, data), allow_nan=False), strict=True)
    assert list(_unknown_fields(parsed)) == []


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _unknown_fields(value: Any) -> Iterator[str]:
    if isinstance(value, BaseModel):
        name = type(value).__name__
        for field in set(value.model_extra or ()) - DOCUMENTED.get(name, set()):
            yield f"{name}.{field}"
        for _, inner in value:
            yield from _unknown_fields(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _unknown_fields(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _unknown_fields(inner)


def _as_declared(kind: Any, data: Any) -> Any:
    """OpenAI's own text completions hold null in two places where the types do not: in a stream before the end, and
    for the first token of an echo."""
    if kind is not Completion:
        return data
    data = deepcopy(data)
    for choice in data["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        if choice["logprobs"]:
            for name, instead in (("token_logprobs", 0.0), ("top_logprobs", {})):
                choice["logprobs"][name] = [instead if item is None else item for item in choice["logprobs"][name]]
    return data
