"""JSON schemas of growing difficulty. Strings and lists are short, so that a small model comes to their end soon."""

from typing import Any

Schema = dict[str, Any]

WORD: Schema = {"type": "string", "maxLength": 8}
SMALL: Schema = {"type": "integer", "minimum": 0, "maximum": 99}


def record(**properties: Any) -> Schema:
    """An object with all of these properties and no others."""
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


SCHEMAS: dict[str, Schema] = {
    # Single values
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "bounded integer": SMALL,
    "negative integers only": {"type": "integer", "minimum": -20, "maximum": -3},
    "exclusive bounds": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 7},
    "number in the unit interval": {"type": "number", "minimum": 0, "maximum": 1},
    "multiple of seven": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 500},
    "multiple of a quarter": {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 10},
    "short string": WORD,
    "string of an exact length": {"type": "string", "minLength": 5, "maxLength": 5},
    "const": {"const": "exactly this"},
    "const of structure": {"const": {"a": [1, None, {"b": "x"}], "c": 1.5}},
    "enum of words": {"enum": ["red", "green", "blue"]},
    "enum of kinds": {"enum": [1, "one", None, True, [1, 2], {"a": 1}]},
    "enum with quotes and escapes": {"enum": ['say "hi"', "back\\slash", "new\nline", "tab\t", "é🐦"]},
    "several types": {"type": ["integer", "null", "boolean"]},
    # Patterns and formats
    "pattern of digits": {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"},
    "pattern unanchored": {"type": "string", "pattern": "cat", "maxLength": 12},
    "pattern with alternatives": {"type": "string", "pattern": "^(Mr|Mrs|Dr)\\. [A-Z][a-z]{1,6}$"},
    "pattern of unicode letters": {"type": "string", "pattern": "^[äöü]{2,4}$"},
    "pattern and length": {"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 6},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "date and time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "ipv4": {"type": "string", "format": "ipv4"},
    # Arrays
    "empty array": {"type": "array", "maxItems": 0},
    "array of integers": {"type": "array", "items": SMALL, "minItems": 1, "maxItems": 4},
    "array of an exact length": {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3},
    "array of arrays": {
        "type": "array",
        "items": {"type": "array", "items": SMALL, "minItems": 1, "maxItems": 2},
        "minItems": 2,
        "maxItems": 2,
    },
    "tuple": {"type": "array", "prefixItems": [WORD, SMALL], "items": False, "minItems": 2},
    "tuple with a tail": {"type": "array", "prefixItems": [SMALL], "items": {"type": "boolean"}, "maxItems": 3},
    "array of a union": {"type": "array", "items": {"anyOf": [SMALL, {"type": "null"}]}, "minItems": 1, "maxItems": 3},
    # Objects
    "empty object": {"type": "object", "properties": {}, "additionalProperties": False},
    "one property": record(name=WORD),
    "optional properties": {
        "type": "object",
        "properties": {"a": SMALL, "b": SMALL, "c": SMALL},
        "required": ["b"],
        "additionalProperties": False,
    },
    "nothing required": {"type": "object", "properties": {"a": SMALL, "b": WORD}, "additionalProperties": False},
    "additional properties left open": {"type": "object", "properties": {"a": SMALL}, "required": ["a"]},
    "additional properties of a kind": {
        "type": "object",
        "properties": {"a": SMALL},
        "required": ["a"],
        "additionalProperties": {"type": "boolean"},
        "maxProperties": 2,
    },
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^x[0-9]$": SMALL},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
    },
    "unicode keys": record(**{"straße": SMALL, "名前": {"enum": ["はい", "いいえ"]}, "🐦": {"type": "boolean"}}),
    "keys to escape": record(**{'a "quoted" key': SMALL, "back\\slash": SMALL, "": SMALL, "a/b~c": SMALL}),
    "keys that look like keywords": record(type=SMALL, properties=SMALL, required={"type": "boolean"}),
    "optional beside required": {"type": "object", "required": ["id"], "properties": {"id": SMALL, "x": SMALL}},
    # Nesting
    "two levels": record(user=record(name=WORD, age=SMALL)),
    "five levels": record(a=record(b=record(c=record(d=record(e=SMALL))))),
    "objects in an array": {"type": "array", "items": record(x=SMALL, y=SMALL), "minItems": 1, "maxItems": 3},
    "everything at once": record(
        id={"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}$"},
        tags={"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 2},
        point={"anyOf": [record(x=SMALL, y=SMALL), {"type": "null"}]},
        score={"type": "number", "minimum": 0, "maximum": 10},
    ),
    "titles and descriptions": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A thing",
        "description": "What it is.",
        **record(a={**SMALL, "title": "A", "description": "One.", "default": 3, "examples": [4]}),
    },
    # Unions
    "any of types": {"anyOf": [SMALL, {"type": "boolean"}, {"type": "null"}]},
    "any of objects": {"anyOf": [record(a=SMALL), record(b=WORD)]},
    "union told apart by a const": {
        "anyOf": [record(kind={"const": "circle"}, radius=SMALL), record(kind={"const": "square"}, side=SMALL)]
    },
    "one of types": {"oneOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "boolean"}]},
    "one of objects told apart by a const": {
        "oneOf": [record(kind={"const": "cat"}, lives=SMALL), record(kind={"const": "dog"}, good={"type": "boolean"})]
    },
    "optional by union": record(a={"anyOf": [WORD, {"type": "null"}]}, b={"type": ["integer", "null"], "maximum": 9}),
    "union within a union": {"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"anyOf": [{"const": "x"}]}]},
    "all of objects": {
        "allOf": [
            {"type": "object", "properties": {"a": SMALL}, "required": ["a"]},
            {"type": "object", "properties": {"b": SMALL}, "required": ["b"]},
        ],
        "maxProperties": 2,
    },
    "all of bounds": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 12}]},
    # References
    "reference": {"$defs": {"word": WORD}, **record(a={"$ref": "#/$defs/word"}, b={"$ref": "#/$defs/word"})},
    "reference by definitions": {"definitions": {"n": SMALL}, **record(a={"$ref": "#/definitions/n"})},
    "reference to a reference": {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": SMALL},
        **record(x={"$ref": "#/$defs/a"}),
    },
    "reference with an escaped name": {"$defs": {"a/b": SMALL}, **record(x={"$ref": "#/$defs/a~1b"})},
    "root is a reference": {"$defs": {"root": record(a=SMALL)}, "$ref": "#/$defs/root"},
    "linked list": {
        "$defs": {
            "node": record(value=SMALL, next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}),
        },
        "$ref": "#/$defs/node",
    },
    "tree": {
        "$defs": {
            "tree": record(n=SMALL, kids={"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1}),
        },
        "$ref": "#/$defs/tree",
    },
    "recursion to the root": {
        "type": "object",
        "properties": {"n": SMALL, "sub": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        "required": ["n", "sub"],
        "additionalProperties": False,
    },
    # As libraries write them
    "a pydantic model": {
        "$defs": {
            "Color": {"enum": ["red", "blue"], "title": "Color", "type": "string"},
            "Wheel": {
                "properties": {"size": {**SMALL, "title": "Size"}},
                "required": ["size"],
                "title": "Wheel",
                "type": "object",
            },
        },
        "properties": {
            "color": {"$ref": "#/$defs/Color"},
            "wheels": {"items": {"$ref": "#/$defs/Wheel"}, "maxItems": 2, "title": "Wheels", "type": "array"},
            "owner": {"anyOf": [WORD, {"type": "null"}], "default": None, "title": "Owner"},
        },
        "required": ["color", "wheels"],
        "title": "Car",
        "type": "object",
    },
    "a zod schema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **record(ok={"type": "boolean"}, reason={"anyOf": [WORD, {"type": "null"}]}),
    },
}  # fmt: skip
