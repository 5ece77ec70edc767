"""What an answer shall match: what is taken, what is refused and where, and what the grammars accept."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from api.pipeline.grammar_check import GrammarCheck
from api.pipeline.grammar_trials import TOO_COMPLEX, GrammarTrials
from api.pipeline.json_grammar import closed
from api.pipeline.prepare import prepare_chat, prepare_completion
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import validate_chat, validate_completion
from api.settings import ApiSettings
from tests.api.pipeline.refusals import facts_of, refusal

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


class Grammars:
    """What a request's grammar accepts as a whole answer."""

    def __init__(self, model: ServedModel, settings: ApiSettings, folder: Path) -> None:
        self._model = model
        self._settings = settings
        self._tokenizer = LLTokenizer((folder / "tokenizer.json").read_text(), n_vocab=model.vocab_size)

    def of(self, **fields: Any) -> str:
        request = {"model": self._model.name, "messages": [{"role": "user", "content": "Hi"}], **fields}
        return prepare_chat(validate_chat(request), self._model, "t", self._settings).job.sampling.grammar

    def of_text(self, **fields: Any) -> str:
        request = {"model": self._model.name, "prompt": "Hi", **fields}
        return prepare_completion(validate_completion(request), self._model, "t", self._settings).job.sampling.grammar

    def accepts(self, grammar: str, text: str) -> bool:
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        ids = self._tokenizer.tokenize_str(text)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.fixture(scope="module")
def grammars(model: ServedModel, settings: ApiSettings, smollm2_folder: Path) -> Grammars:
    return Grammars(model, settings, smollm2_folder)


def schema_format(schema: Any = OBJECT, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True, **fields}}


JSON = ['{"a": 1}', '{"a": -20}']
NO_JSON = ['{"a":1}', '{"a": 1, "b": 2}', '{"a": 1.5}', "{}", '{"a": 1} ', '{ "a": 1}', '{"a": 1', "1", ""]
TAKEN: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"response_format": {"type": "json_object"}}, ['{"x": [1, {"y": null}], "é🐦": "z"}', "{}"], ["[]", '{"x"}', "1"]),
    ({"response_format": schema_format()}, JSON, NO_JSON),
    ({"response_format": schema_format(strict=None)}, JSON, NO_JSON),
    ({"response_format": schema_format(schema=None)}, ["{}"], ["[]"]),
    ({"guided_json": OBJECT}, JSON, NO_JSON),
    ({"guided_json": json.dumps(OBJECT)}, JSON, NO_JSON),
    ({"structured_outputs": {"json": OBJECT}}, JSON, NO_JSON),
    ({"structured_outputs": {"json_object": True}}, ["{}"], ["[]"]),
    ({"guided_regex": r"\d{3}/[a-f]+"}, ["123/ab"], ["12/ab", "123ab", "123/ab "]),
    ({"structured_outputs": {"regex": "a?"}}, ["", "a"], ["aa"]),
    (
        {"guided_choice": ['yes "or"', "no\n", "é🐦\\", "a/b", "a/b", "\x7f\x00"]},
        ['yes "or"', "no\n", "é🐦\\", "a/b", "\x7f\x00"],
        ["yes", "no", "", "a/ba/b"],
    ),
    ({"structured_outputs": {"choice": ["x"]}}, ["x"], ["", "y"]),
    ({"guided_grammar": 'start: "a" b+\nb: /[0-9]/'}, ["a1", "a22"], ["a", "1"]),
    ({"guided_grammar": 'root ::= "a" [0-9]+'}, ["a1", "a22"], ["a", "1"]),
    ({"structured_outputs": {"grammar": 'start: "a" | "b"'}}, ["a", "b"], ["ab"]),
    # The schema's own wish for white space or leniency does not count
    ({"guided_json": OBJECT | {"x-guidance": {"whitespace_flexible": True, "lenient": True}}}, JSON, NO_JSON),
    ({"guided_json": {"$schema": "http://json-schema.org/schema#", "type": "null"}}, ["null"], ["1"]),
    # Without strict, what cannot be followed is left out of account
    ({"response_format": schema_format({"type": "integer", "not": {"const": 3}}, strict=False)}, ["4", "3"], ["x"]),
]


@pytest.mark.parametrize(("fields", "accepted", "refused"), TAKEN)
def test_a_grammar_accepts_just_what_was_asked_for(
    grammars: Grammars, fields: dict[str, Any], accepted: list[str], refused: list[str]
) -> None:
    grammar = grammars.of(**fields)
    assert [text for text in accepted if not grammars.accepts(grammar, text)] == []
    assert [text for text in refused if grammars.accepts(grammar, text)] == []
    assert grammars.of_text(**fields) == grammar


@pytest.mark.parametrize(
    "fields", [{}, {"response_format": {"type": "text"}}, {"response_format": None, "structured_outputs": {}}]
)
def test_nothing_asked_for_is_no_grammar(grammars: Grammars, fields: dict[str, Any]) -> None:
    assert grammars.of(**fields) == ""


DEEP: dict[str, Any] = {"type": "string"}
for _ in range(200):
    DEEP = {"type": "array", "items": DEEP}
ENDLESS = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
SCHEMA = "response_format.json_schema.schema"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {}}, "response_format.type"),
    ({"response_format": {"type": "yaml"}}, "response_format.type"),
    ({"response_format": "json_object"}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": schema_format(name=None)}, "response_format.json_schema.name"),
    ({"response_format": schema_format(name="my answer")}, "response_format.json_schema.name"),
    ({"response_format": schema_format("string")}, SCHEMA),
    ({"response_format": schema_format({"type": "text"})}, SCHEMA),
    ({"response_format": schema_format({"type": "text"}, strict=False)}, SCHEMA),
    ({"response_format": schema_format({"type": "array", "uniqueItems": True})}, SCHEMA),
    ({"response_format": schema_format({"$ref": "#/$defs/x"})}, SCHEMA),
    ({"response_format": schema_format({"$ref": "https://example.com/x"})}, SCHEMA),
    ({"response_format": schema_format({"type": "string", "pattern": "(?=a)b"})}, SCHEMA),
    ({"response_format": schema_format({"type": "string", "minLength": 3, "maxLength": 2})}, SCHEMA),
    ({"response_format": schema_format({"enum": []})}, SCHEMA),
    ({"response_format": schema_format({"type": "object", "properties": []})}, SCHEMA),
    ({"response_format": schema_format({"enum": ["x" * 300_000]})}, SCHEMA),
    ({"response_format": schema_format({"properties": {f"p{i}": {} for i in range(1001)}})}, SCHEMA),
    ({"response_format": schema_format({"type": "integer", "multipleOf": 999983})}, SCHEMA),
    ({"guided_json": {"$ref": "#/x/y", "x": {"y": {"type": "integer", "multipleOf": 999983}}}}, "guided_json"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_json": "[]"}, "guided_json"),
    ({"guided_json": {"type": "object", "properties": {"a": {"not": {}}}}}, "guided_json"),
    ({"guided_json": DEEP | {"items": DEEP}}, "guided_json"),
    ({"response_format": schema_format({"$defs": {"d": DEEP}, "$ref": "#/$defs/d"})}, SCHEMA),
    ({"response_format": schema_format(ENDLESS)}, SCHEMA),
    ({"guided_choice": ["<|im_end|>"]}, "guided_choice"),  # no text makes an answer of this token
    ({"guided_regex": "a("}, "guided_regex"),
    ({"guided_regex": r"(a)\1"}, "guided_regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": ["a"] * 1001}, "guided_choice"),
    ({"guided_choice": [1]}, "guided_choice"),
    ({"guided_grammar": "start: missing"}, "guided_grammar"),
    ({"guided_grammar": "no grammar at all"}, "guided_grammar"),
    ({"guided_grammar": "a" * 40_000}, "guided_grammar"),
    ({"structured_outputs": {"json": OBJECT, "regex": "a"}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a("}}, "structured_outputs.regex"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_cannot_be_followed_is_refused_with_its_place(
    grammars: Grammars, fields: dict[str, Any], param: str
) -> None:
    with refusal() as refused:
        grammars.of(**fields)
    status, place, _ = refused.facts
    assert (status, (place or "").removesuffix("[0]")) == (400, param)
    assert refused.error is not None
    assert "\n" not in refused.error.message


@pytest.mark.parametrize("name", ["structural_tag", "whitespace_pattern"])
def test_other_ways_to_say_it_are_refused_by_name(grammars: Grammars, name: str) -> None:
    facts = facts_of(lambda: grammars.of(structured_outputs={name: "x"}))
    assert facts == (400, f"structured_outputs.{name}", "unsupported_parameter")


def multiples(*steps: int) -> dict[str, Any]:
    return {"allOf": [{"type": "integer", "multipleOf": step} for step in steps]}


SLOW = multiples(997, 991)  # six seconds; each alone takes none
LARK_SLOW = f"start: %json {json.dumps(SLOW)}"


def test_a_grammar_that_takes_too_long_to_make_is_ended_and_remembered(smollm2_folder: Path) -> None:
    check = GrammarCheck(Tokenizer.from_file(str(smollm2_folder / "tokenizer.json")), 49152, slow_s=0.1)
    slow, quick = (json.dumps({"grammars": [{"json_schema": schema}]}) for schema in (SLOW, multiples(97, 91)))
    assert check.problem(slow) == TOO_COMPLEX
    assert check.problem(quick) == ""
    assert check.problem(json.dumps({"grammars": [{"lark_grammar": LARK_SLOW}]})) == TOO_COMPLEX
    check._trials = None  # type: ignore[assignment]
    assert check.problem(slow) == TOO_COMPLEX


def test_a_process_that_tries_grammars_is_started_again_when_it_is_gone(smollm2_folder: Path) -> None:
    trials = GrammarTrials((smollm2_folder / "tokenizer.json").read_text, 49152)
    assert trials.problem(LLMatcher.grammar_from_regex("a+")) == ""
    trials._server().shutdown(socket.SHUT_RDWR)
    assert trials.problem(LLMatcher.grammar_from_regex("a(")) != ""


INNER = {"type": "object", "properties": {"b": {}}}
SHUT = INNER | {"additionalProperties": False}
MERGED: list[dict[str, Any]] = [
    {"allOf": [INNER, {"properties": {"c": {}}}]},
    {"properties": {"a": INNER}, "$ref": "#/$defs/d", "$defs": {"d": INNER}},
    {"properties": {"a": INNER}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (INNER, SHUT),
        ({"properties": {"a": INNER}}, {"properties": {"a": SHUT}, "additionalProperties": False}),
        ({"$defs": {"d": INNER}, "$ref": "#/$defs/d"}, {"$defs": {"d": SHUT}, "$ref": "#/$defs/d"}),
        ({"anyOf": [INNER, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        ({"type": "array", "items": INNER}, {"type": "array", "items": SHUT}),
        ({"type": "object"}, {"type": "object"}),
        (INNER | {"additionalProperties": {}}, INNER | {"additionalProperties": {}}),
        (INNER | {"required": ["c"]}, INNER | {"required": ["c"]}),
        (INNER | {"minProperties": 2}, INNER | {"minProperties": 2}),
        *((schema, schema) for schema in MERGED),
    ],
)
def test_objects_that_name_their_properties_are_closed_unless_schemas_are_merged(schema: Any, expected: Any) -> None:
    assert closed(schema) == expected
