"""A JSON schema as a grammar: prepared so that a model that follows it comes to an end.

White space is that of ``json.dumps``: where a grammar leaves it free, small models write nothing else for ever.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
Grammar = dict[str, Any]  # one of llguidance's, without its name

MAX_DEPTH = 60  # of objects and arrays within each other; every level of a schema is two or three
MAX_PROPERTIES = 1000  # of one object: each may be followed by any later one
MAX_STEP_DIGITS = 3  # a grammar counts in remainders

_OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_pattern": None,
    "json_allowed_escapes": None,
    "json_allow_general_unicode_escapes": False,
}
_DRAFTS = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
_NESTED = ("properties", "$defs", "definitions", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_MERGED = ("anyOf", "oneOf", "allOf", "$ref")
_OPEN_BY_CHOICE = ("additionalProperties", "unevaluatedProperties", "patternProperties", "minProperties")


def json_grammar(schema: Schema, *, is_strict: bool) -> Grammar:
    """Strict: what cannot be followed in full is an error of the grammar; else it is left out of account."""
    options = _OPTIONS | {"lenient": not is_strict, "coerce_one_of": not is_strict}
    kept = {key: value for key, value in closed(schema).items() if key != "$schema" or value in _DRAFTS}
    return {"json_schema": kept | {"x-guidance": options}}


def is_deeper_than(value: Any, depth: int) -> bool:
    """Whether objects and arrays stand within each other on more levels than that."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(depth == 0 or is_deeper_than(each, depth - 1) for each in inner)


def costly_place(schema: Schema) -> str | None:
    """What in the schema would take far too long to make a grammar of, in words; None if nothing would."""
    if is_deeper_than(schema, MAX_DEPTH):
        return f"more than {MAX_DEPTH} levels"
    for inner in _objects(schema):
        properties, step = inner.get("properties"), inner.get("multipleOf")
        if isinstance(properties, dict) and len(properties) > MAX_PROPERTIES:
            return f"an object with more than {MAX_PROPERTIES} properties"
        if isinstance(step, int | float) and len(str(step).replace(".", "").strip("0")) > MAX_STEP_DIGITS:
            return f"'multipleOf' with more than {MAX_STEP_DIGITS} digits"
    return None


def closed(schema: Schema) -> Schema:
    """Objects that name their properties get no others, unless the schema says so.

    JSON schemas leave objects open, and a model that samples keys freely seldom stops. Every answer under the closed
    schema is one under the given schema. Where schemas are merged, properties of one part would be refused by another,
    so such a schema stays as it is.
    """
    return schema if any(map(_merges, _subschemas(schema))) else _closed(schema)


def _merges(schema: Schema) -> bool:
    num_parts = sum(key in schema for key in (*_MERGED, "properties"))
    return num_parts > 1 or (isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1)


def _closed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    changed = dict(value)
    for key, inner in value.items():
        if key in _NESTED and isinstance(inner, dict):
            changed[key] = {name: _closed(item) for name, item in inner.items()}
        elif key in _LISTS and isinstance(inner, list):
            changed[key] = [_closed(item) for item in inner]
        elif key in _SINGLE:
            changed[key] = _closed(inner)
    if _names_all_its_keys(value):
        changed["additionalProperties"] = False
    return changed


def _names_all_its_keys(schema: Schema) -> bool:
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not properties or any(key in schema for key in _OPEN_BY_CHOICE):
        return False
    return isinstance(required, list) and all(name in properties for name in required)


def _objects(value: Any) -> Iterator[Schema]:
    """All objects in it, wherever they are: a reference may name any place."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _subschemas(value: Any) -> Iterator[Schema]:
    """The schema and all within it."""
    if not isinstance(value, dict):
        return
    yield value
    for key, inner in value.items():
        if key in _NESTED and isinstance(inner, dict):
            for item in inner.values():
                yield from _subschemas(item)
        elif key in _LISTS and isinstance(inner, list):
            for item in inner:
                yield from _subschemas(item)
        elif key in _SINGLE:
            yield from _subschemas(inner)
