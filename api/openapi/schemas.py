"""JSON schemas of the types that check requests and describe answers, under names fit for a document."""

from collections.abc import Iterable
from typing import Any

import msgspec

PREFIX = "#/components/schemas/"
Schema = dict[str, Any]


class Schemas:
    """Types as references into `components`, which holds them and all that they refer to."""

    def __init__(self, types: Iterable[Any]) -> None:
        self._types = list(dict.fromkeys(types))
        found, components = msgspec.json.schema_components(self._types, ref_template=PREFIX + "{name}")
        self._found = dict(zip(self._types, map(_renamed, found), strict=True))
        self.components: dict[str, Schema] = {_public(name): _renamed(schema) for name, schema in components.items()}
        assert len(self.components) == len(components), "two types have one public name"

    def of(self, kind: Any) -> Schema:
        schema: Schema = self._found[kind]
        return schema

    def body(self, kind: Any, required: tuple[str, ...], more: Any = None) -> Schema:
        """Of a request body. The fields required must be there and hold something."""
        parts: list[Schema] = [self.of(each) for each in (kind, more) if each is not None]
        if required:
            given = {name: {"not": {"type": "null"}} for name in required}
            parts.append({"type": "object", "required": list(required), "properties": given})
        return parts[0] if len(parts) == 1 else {"allOf": parts}


def _renamed(value: Any) -> Any:
    """The schema with public names in its references, and its title."""
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: _renamed(item) for key, item in value.items()}
    if isinstance(reference := value.get("$ref"), str):
        renamed["$ref"] = PREFIX + _public(reference.removeprefix(PREFIX))
    if isinstance(title := value.get("title"), str):
        renamed["title"] = title.removeprefix("Raw")
    return renamed


def _public(name: str) -> str:
    """Without the marks of types that are still to be checked: ``api.pipeline.messages.RawPart``, ``RawChatRequest``.

    msgspec puts the module before names that several types share.
    """
    *module, last = name.split(".")
    return ".".join((*module[-1:], last.removeprefix("Raw")))
