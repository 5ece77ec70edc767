"""The OpenAPI document of an app: every route of its URL map that `operations` describes."""

import re
from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from werkzeug.routing import Map, Rule

from api.errors import ANTHROPIC_PATH
from api.openapi.answers import ErrorEnvelope
from api.openapi.operations import OPERATIONS, Operation
from api.openapi.parameters import Parameter
from api.openapi.schemas import Schemas
from api.openapi.turn_answers import MessagesErrorEnvelope

Json = dict[str, Any]

REFUSALS = {
    400: "The request is wrong, or asks for what is not served; `param` names the field",
    401: "No key, or a wrong one",
    403: "Not from this origin, or not under this host name",
    404: "No such model, job, response, file or batch",
    405: "Not with this method",
    408: "The body did not arrive in time",
    409: "The Idempotency-Key was used for another request, or what is asked for is in use",
    413: "The body is too large",
    415: "The body is not of the type that is asked for, or compressed",
    416: "Nothing is in the range asked for",
    426: "Only as a WebSocket",
    429: "Too many requests, or the queue is full: try again after the time in Retry-After",
    500: "The server had an error",
    503: "The broker or the workers are away: try again after the time in Retry-After",
    504: "The request's own time ran out",
}
_OF_BODIES = frozenset({408, 409, 413, 415, 429, 504})
_OF_UPGRADES = frozenset({403, 426})
_OF_RANGES = frozenset({416})
_ARGUMENT = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")


def openapi_document(routes: Map) -> Json:
    """OpenAPI 3.1, as JSON."""
    kinds = [kind for operation in OPERATIONS.values() for kind in operation.types]
    schemas = Schemas([*kinds, ErrorEnvelope, MessagesErrorEnvelope])
    paths: Json = {}
    for rule in sorted(routes.iter_rules(), key=lambda rule: (rule.rule, rule.endpoint)):
        operation = OPERATIONS.get(rule.endpoint)
        if operation is None:
            continue
        for method in methods_of(rule):
            place = paths.setdefault(path_of(rule), {})
            # Where a WebSocket shares its path with a GET, one description tells of both.
            place.setdefault(method.lower(), _described(rule, method, operation, schemas))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": version("headrace")},
        "paths": paths,
        "security": [{"bearer": []}, {"key": []}, {}],
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def path_of(rule: Rule) -> str:
    return _ARGUMENT.sub(r"{\1}", rule.rule)


def methods_of(rule: Rule) -> list[str]:
    """Without those that every route has."""
    return sorted((rule.methods or {"GET"}) - {"HEAD", "OPTIONS"})


def _described(rule: Rule, method: str, operation: Operation, schemas: Schemas) -> Json:
    described: Json = {
        "operationId": f"{method.lower()}_{rule.endpoint}".replace(".", "_"),
        "summary": operation.summary,
        "parameters": [parameter.described() for parameter in _parameters(rule, operation)],
        "responses": _answers(operation, schemas) | _refusals(rule, operation, schemas),
    }
    if operation.request is not None:
        body = schemas.body(operation.request, operation.required, operation.more_fields)
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if operation.form is not None:
        form = {"schema": schemas.of(operation.form)}
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": form}}
    if operation.is_open:
        described["security"] = []
    return described


def _parameters(rule: Rule, operation: Operation) -> Iterator[Parameter]:
    for name in _ARGUMENT.findall(rule.rule):
        yield Parameter(name, "path", {"type": "string", "minLength": 1}, f"The {name.replace('_', ' ')}.")
    yield from operation.parameters


def _answers(operation: Operation, schemas: Schemas) -> Json:
    if operation.upgrades:
        return {"101": {"description": HTTPStatus(101).phrase}}
    content: Json = {}
    if operation.answer is not None:
        content["application/json"] = {"schema": schemas.of(operation.answer)}
    if operation.answer_text:
        content[operation.answer_text] = {}
    answers: Json = {"200": {"description": "The answer", "content": content}} if content else {}
    if operation.has_ranges:
        answers["206"] = {"description": "The range asked for", "content": content}
    return answers


def _refusals(rule: Rule, operation: Operation, schemas: Schemas) -> Json:
    is_anthropic = rule.rule.startswith(ANTHROPIC_PATH)
    envelope = schemas.of(MessagesErrorEnvelope if is_anthropic else ErrorEnvelope)
    absent = frozenset() if operation.request or operation.form else _OF_BODIES
    absent |= frozenset() if operation.upgrades else _OF_UPGRADES
    absent |= frozenset() if operation.has_ranges else _OF_RANGES
    absent -= {409} if operation.may_conflict else frozenset()
    content = {"application/json": {"schema": envelope}}
    return {
        str(status): {"description": text, "content": content}
        for status, text in REFUSALS.items()
        if status not in absent
    }
