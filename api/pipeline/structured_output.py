"""What a request says its answer must match: OpenAI's response_format, and the guided_ fields of other servers."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from llguidance import LLMatcher, grammar_from

from api.errors import bad_request, unsupported_parameter
from api.pipeline.json_grammar import Grammar, Schema, costly_place, json_grammar

MAX_BYTES = 256 * 1024  # of a schema, a regular expression or a grammar
MAX_OWN_GRAMMAR_BYTES = 32 * 1024  # grammars are translated in Python
MAX_CHOICES = 1000
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class RawJsonSchema(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class RawResponseFormat(msgspec.Struct):
    type: str | None = None
    json_schema: RawJsonSchema | None = None


class RawStructuredOutputs(msgspec.Struct):
    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None
    whitespace_pattern: str | None = None


class HasStructure(Protocol):
    """The fields of a request that say so; at most one of them may."""

    response_format: RawResponseFormat | None
    structured_outputs: RawStructuredOutputs | None
    guided_json: dict[str, Any] | str | None
    guided_regex: str | None
    guided_choice: list[str] | None
    guided_grammar: str | None


@dataclass(frozen=True)
class Structure:
    grammar: Grammar
    param: str  # where the request says so, for error messages


def check_structure(raw: HasStructure) -> Structure | None:
    """Raises ApiError 400 that names the field."""
    given: list[tuple[str, Any, Callable[[Any, str], Structure | None]]] = [
        ("response_format", raw.response_format, check_response_format),
        ("structured_outputs", raw.structured_outputs, _check_structured_outputs),
        ("guided_json", raw.guided_json, _check_json),
        ("guided_regex", raw.guided_regex, _check_regex),
        ("guided_choice", raw.guided_choice, _check_choice),
        ("guided_grammar", raw.guided_grammar, _check_grammar),
    ]
    found = [check(value, param) for param, value, check in given if value is not None]
    structures = [structure for structure in found if structure is not None]
    if len(structures) > 1:
        param = structures[1].param
        raise bad_request(f"'{param}' cannot be used together with '{structures[0].param}'.", param)
    return structures[0] if structures else None


def check_response_format(raw: RawResponseFormat, param: str) -> Structure | None:
    if raw.type == "text":
        return None
    if raw.type == "json_object":
        return Structure(json_grammar({"type": "object"}, is_strict=True), param)
    if raw.type != "json_schema":
        raise bad_request(f"'{param}.type' must be text, json_object or json_schema.", f"{param}.type")
    if raw.json_schema is None:
        raise bad_request(f"'{param}.json_schema' is missing.", f"{param}.json_schema")
    return check_json_schema(raw.json_schema, f"{param}.json_schema")


def check_json_schema(raw: RawJsonSchema, param: str) -> Structure:
    """Raises ApiError 400. Without `strict` a schema may say more than can be followed, as with OpenAI."""
    if raw.name is None or not _NAME.fullmatch(raw.name):
        problem = "is missing" if raw.name is None else "must be 1 to 64 letters, digits, underscores and dashes"
        raise bad_request(f"'{param}.name' {problem}.", f"{param}.name")
    schema = {"type": "object"} if raw.schema is None else raw.schema
    check_schema_size(schema, f"{param}.schema")
    return Structure(json_grammar(schema, is_strict=bool(raw.strict)), f"{param}.schema")


def check_schema_size(schema: Schema, param: str) -> None:
    """Raises ApiError 400 for a schema that would cost too much."""
    if (place := costly_place(schema)) is not None:
        raise bad_request(f"'{param}' is too complex: it holds {place}.", param)
    _check_size(msgspec.json.encode(schema), param)


def _check_structured_outputs(raw: RawStructuredOutputs, param: str) -> Structure | None:
    for name in ("structural_tag", "whitespace_pattern"):
        if getattr(raw, name) is not None:
            raise unsupported_parameter(f"{param}.{name}", "null")
    kinds: dict[str, Callable[[Any, str], Structure]] = {
        "json": _check_json, "regex": _check_regex, "choice": _check_choice, "grammar": _check_grammar,
    }  # fmt: skip
    given = {name: getattr(raw, name) for name in kinds if getattr(raw, name) is not None}
    if raw.json_object:
        given["json"] = given.get("json", {"type": "object"})
    if len(given) > 1:
        raise bad_request(f"'{param}' may hold only one of {', '.join(kinds)}.", param)
    return next((kinds[name](value, f"{param}.{name}") for name, value in given.items()), None)


def _check_json(given: dict[str, Any] | str, param: str) -> Structure:
    schema = given
    if isinstance(given, str):
        try:
            schema = msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_request(f"'{param}' is no JSON: {error}.", param) from None
    if not isinstance(schema, dict):
        raise bad_request(f"'{param}' must be a JSON schema, an object.", param)
    check_schema_size(schema, param)
    return Structure(json_grammar(schema, is_strict=True), param)


def _check_regex(regex: str, param: str) -> Structure:
    _check_size(regex.encode(), param)
    return Structure(_only_grammar(LLMatcher.grammar_from_regex(regex)), param)


def _check_choice(choices: list[str], param: str) -> Structure:
    if not 1 <= len(choices) <= MAX_CHOICES:
        raise bad_request(f"'{param}' must hold 1 to {MAX_CHOICES} strings.", param)
    _check_size("".join(choices).encode(), param)
    alternatives = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in dict.fromkeys(choices))
    # JSON may hold DEL as it is, a grammar's string may not.
    return Structure({"lark_grammar": f"start: {alternatives}".replace("\x7f", "\\u007f")}, param)


def _check_grammar(grammar: str, param: str) -> Structure:
    """In Lark's syntax, or in GBNF."""
    if len(grammar.encode()) > MAX_OWN_GRAMMAR_BYTES:
        raise bad_request(f"'{param}' is larger than {MAX_OWN_GRAMMAR_BYTES} bytes.", param)
    try:
        return Structure(_only_grammar(grammar_from("grammar", grammar)), param)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"'{param}' is no grammar: {error}.", param) from None


def _only_grammar(serialized: str) -> Grammar:
    if not serialized.startswith("{"):
        return {"lark_grammar": serialized}
    grammars: list[Grammar] = json.loads(serialized)["grammars"]
    return {"lark_grammar": grammars[0]["lark_grammar"]}


def _check_size(text: bytes, param: str) -> None:
    if len(text) > MAX_BYTES:
        raise bad_request(f"'{param}' is larger than {MAX_BYTES} bytes.", param)
