"""The OpenAPI document is whole and valid, and made of the types that check requests."""

from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from flask import Flask
from jsonschema import Draft202012Validator
from openai.types import Completion
from openai.types.chat import ChatCompletion

import api.routes
from api.openapi.document import methods_of, openapi_document, path_of
from api.openapi.operations import OPERATIONS
from api.openapi.schemas import PREFIX

Json = dict[str, Any]


@cache
def app() -> Flask:
    """Every route there is, without the model and the broker that serving them takes."""
    app = Flask("headrace", static_folder=None)
    for file in sorted(Path(str(api.routes.__file__)).parent.glob("*.py")):
        routes = getattr(import_module(f"api.routes.{file.stem}"), "routes", None)
        if routes is not None:
            app.register_blueprint(routes)
    return app


@cache
def document() -> Json:
    return openapi_document(app().url_map)


def schema_of(name: str) -> Json:
    schema: Json = document()["components"]["schemas"][name]
    return schema


def accepts(schema: Json, value: Any) -> bool:
    whole = {**schema, "components": document()["components"]}
    return bool(Draft202012Validator(whole).is_valid(value))


def body_schema(path: str) -> Json:
    schema: Json = document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema


def test_every_route_is_described_with_every_method() -> None:
    registered = {(path_of(rule), method) for rule in app().url_map.iter_rules() for method in methods_of(rule)}
    described = {(path, method.upper()) for path, place in document()["paths"].items() for method in place}
    assert described == registered
    assert ("/v1/chat/completions/{job_id}/stream", "GET") in described
    assert set(OPERATIONS) <= {rule.endpoint for rule in app().url_map.iter_rules()}


def test_it_says_what_it_is() -> None:
    assert document()["openapi"] == "3.1.0"
    assert document()["info"]["title"] == "Headrace"
    schemathesis.openapi.from_dict(document()).validate()


def test_every_schema_is_one_and_every_reference_leads_somewhere() -> None:
    for schema in document()["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    known = {PREFIX + name for name in document()["components"]["schemas"]}
    assert set(references(document())) == known


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [found for item in value.values() for found in references(item)]


def test_names_are_public_ones() -> None:
    names = list(document()["components"]["schemas"])
    assert not [name for name in names if "Raw" in name or name.startswith("api")]


def test_each_operation_has_a_name_of_its_own_and_its_path_parameters() -> None:
    names = []
    for path, place in document()["paths"].items():
        for operation in place.values():
            names.append(operation["operationId"])
            in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}
            assert operation["responses"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("path", "body", "is_right"),
    [
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}]}, True),
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": None}, True),
        ("/v1/chat/completions", {"model": "m"}, False),
        ("/v1/chat/completions", {"model": None, "messages": []}, False),
        ("/v1/chat/completions", {"model": "m", "messages": [], "top_logprobs": 21}, False),
        ("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "x"}]}, True),
        ("/v1/completions", {"model": "m", "prompt": ["x", "y"], "temperature": 2}, True),
        ("/v1/completions", {"model": "m", "prompt": "x", "temperature": 2.1}, False),
        ("/v1/messages", {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}, True),
        ("/v1/messages", {"model": "m", "messages": [{"role": "user", "content": "x"}]}, False),
        ("/v1/responses", {"model": "m", "input": [{"role": "user", "content": "x"}]}, True),
        ("/v1/responses", {"model": "m", "input": 3}, False),
        ("/tokenize", {"messages": [{"role": "user", "content": "x"}], "add_special_tokens": False}, True),
        ("/tokenize", {"prompt": ["x"]}, False),
        ("/detokenize", {"tokens": [1, 2]}, True),
        ("/detokenize", {"tokens": [-1]}, False),
    ],
)
def test_bodies_are_right_by_the_document_as_they_are_by_the_server(path: str, body: Json, is_right: bool) -> None:
    assert accepts(body_schema(path), body) is is_right


def test_errors_are_told_in_the_envelope_of_their_api() -> None:
    described = partial(_error_schema, status="400")
    assert described("/v1/chat/completions") == {"$ref": PREFIX + "ErrorEnvelope"}
    assert described("/v1/messages") == {"$ref": PREFIX + "MessagesErrorEnvelope"}
    assert described("/v1/messages/count_tokens") == {"$ref": PREFIX + "MessagesErrorEnvelope"}
    assert set(schema_of("Error")["required"]) == {"message", "type", "param", "code"}


def _error_schema(path: str, status: str) -> Json:
    schema: Json = document()["paths"][path]["post"]["responses"][status]["content"]["application/json"]["schema"]
    return schema


def test_answers_that_may_be_streams_say_so() -> None:
    streaming = {
        path
        for path, place in document()["paths"].items()
        for operation in place.values()
        if "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
    }
    assert streaming == {
        "/v1/chat/completions",
        "/v1/chat/completions/{job_id}/stream",
        "/v1/completions",
        "/v1/completions/{job_id}/stream",
        "/v1/messages",
        "/v1/responses",
        "/v1/responses/{response_id}",
    }


def test_answers_have_the_fields_that_the_sdk_requires() -> None:
    for name, kind in (("ChatCompletion", ChatCompletion), ("Completion", Completion)):
        needed = {field for field, info in kind.model_fields.items() if info.is_required()}
        assert needed <= set(schema_of(name)["required"])
