"""Whatever is asked for, every answer, chunk, event and error is of the official SDKs' types: strictly, and no more."""

import json
from typing import Any

import pytest
from anthropic.types import ErrorResponse as AnthropicErrorResponse
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from openai.types import ErrorObject, Model
from openai.types.responses import Response, ResponseItemList
from openai.types.responses.input_token_count_response import InputTokenCountResponse

from tests.api.http import responses_client as responses
from tests.api.http.client import CHAT, COMPLETIONS, Json, answered, chat_body, completion_body, get, post, streamed
from tests.api.http.reciter import RECITER
from tests.api.http.schemas import assert_valid
from tests.stack import WebServer

MESSAGES = "/v1/messages"
PARAMETERS = {"type": "object", "properties": {"river": {"const": "Isar"}}, "required": ["river"]}
FUNCTION = {"name": "rise", "description": "Where it rises.", "parameters": PARAMETERS}
TOOL = {"type": "function", "function": FUNCTION}
SCHEMA = {"name": "river", "schema": {**PARAMETERS, "additionalProperties": False}, "strict": True}
USAGE = {"stream_options": {"include_usage": True}}

CHATS: dict[str, Json] = {
    "plain": {},
    "several": {"n": 3, "stop": [" hills"]},
    "logprobs": {"logprobs": True, "top_logprobs": 3, "n": 2},
    "tier": {"service_tier": "flex", "metadata": {"a": "b"}, "store": True},
    "calls": {"tools": [TOOL], "tool_choice": "required", "max_tokens": 80, "n": 2},
    "calls with logprobs": {"tools": [TOOL], "tool_choice": "required", "max_tokens": 80, "logprobs": True},
    "may call": {"tools": [TOOL], "parallel_tool_calls": False},
    "older call": {"functions": [FUNCTION], "function_call": {"name": "rise"}, "max_tokens": 80},
    "schema": {"response_format": {"type": "json_schema", "json_schema": SCHEMA}, "max_tokens": 60},
    "object": {"response_format": {"type": "json_object"}, "max_tokens": 8},
}
TEXTS: dict[str, Json] = {
    "plain": {},
    "several": {"n": 2, "prompt": ["The", "river"]},
    "logprobs": {"logprobs": 5, "n": 2},
    "echo": {"echo": True, "logprobs": 1, "max_tokens": 0},
    "echo before an answer": {"echo": True, "logprobs": 0},
    "choice": {"guided_choice": ["yes"], "service_tier": "default"},
}
RESPONSES: dict[str, Json] = {
    "plain": {},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "calls": {"tools": [{"type": "function", **FUNCTION, "strict": True}], "tool_choice": "required",
              "max_output_tokens": 80},
    "schema": {"text": {"format": {"type": "json_schema", **SCHEMA}}, "max_output_tokens": 60},
    "much said": {"instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5, "truncation": "auto",
                  "store": False, "service_tier": "flex", "user": "u", "prompt_cache_key": "k"},
}  # fmt: skip
MESSAGE: Json = {"model": RECITER, "messages": [{"role": "user", "content": "Where?"}], "max_tokens": 6}
NAMED = {"name": "rise", "input_schema": PARAMETERS}
SAID: dict[str, Json] = {
    "plain": {},
    "stop": {"stop_sequences": [" hills", "e"]},
    "calls": {"tools": [NAMED], "tool_choice": {"type": "any"}, "max_tokens": 80},
}


def deltas_of(chunks: list[Json], field: str) -> list[Any]:
    return [c["delta"][field] for chunk in chunks for c in chunk["choices"] if field in c["delta"]]


@pytest.mark.parametrize("name", CHATS)
def test_chats(server: WebServer, name: str) -> None:
    body = chat_body(**CHATS[name])
    whole, stream = answered(server, CHAT, body), streamed(server, CHAT, body | USAGE)
    assert stream.chunks[-1]["usage"].keys() == whole["usage"].keys()
    if "tools" in body and "tool_choice" in body:
        assert len(deltas_of(stream.chunks, "tool_calls")) > 2
    assert bool(deltas_of(stream.chunks, "function_call")) == ("functions" in body)


@pytest.mark.parametrize("name", TEXTS)
def test_text_completions(server: WebServer, name: str) -> None:
    body = completion_body(**{"prompt": "The river", **TEXTS[name]})
    whole, stream = answered(server, COMPLETIONS, body), streamed(server, COMPLETIONS, body | USAGE)
    assert stream.chunks[-1]["usage"].keys() == whole["usage"].keys()


@pytest.mark.parametrize("name", RESPONSES)
def test_responses(server: WebServer, name: str) -> None:
    body = responses.body(**RESPONSES[name])
    whole, events = responses.created(server, body), responses.streamed(server, body)
    assert_valid(Response, events[-1]["response"])
    assert events[-1]["response"].keys() == whole.keys()
    assert [item.keys() for item in events[-1]["response"]["output"]] == [item.keys() for item in whole["output"]]
    if body.get("store") is not False:
        assert responses.retrieved(server, whole["id"]) == whole
        assert_valid(ResponseItemList, get(server, f"/v1/responses/{whole['id']}/input_items").json())


@pytest.mark.parametrize("name", SAID)
def test_anthropics_messages(server: WebServer, name: str) -> None:
    assert_valid(Message, post(server, MESSAGES, MESSAGE | SAID[name]).json())
    stream = post(server, MESSAGES, MESSAGE | SAID[name] | {"stream": True})
    events = [json.loads(line[6:]) for line in stream.text.split("\n") if line.startswith("data: ")]
    for event in events:
        if event["type"] != "ping":
            assert_valid(RawMessageStreamEvent, event)
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]


def test_what_is_told_without_a_worker(server: WebServer) -> None:
    for model in get(server, "/v1/models").json()["data"]:
        assert_valid(Model, model)
    counted = post(server, "/v1/responses/input_tokens", {"model": RECITER, "input": "Where?"}).json()
    assert_valid(InputTokenCountResponse, counted)
    counted = post(server, f"{MESSAGES}/count_tokens", {key: MESSAGE[key] for key in ("model", "messages")}).json()
    assert_valid(MessageTokensCount, counted)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, {"model": RECITER, "messages": []}, 400),
        (CHAT, {"model": "other", "messages": [{"role": "user", "content": ""}]}, 404),
        (COMPLETIONS, {"model": RECITER, "prompt": "x", "n": 0, "stream": True}, 400),
        (COMPLETIONS, "{", 400),
        (responses.RESPONSES, {"model": RECITER, "input": 5}, 400),
        ("/v1/embeddings", {"model": RECITER, "input": "x"}, 400),
        ("/v1/nothing", {}, 404),
    ],
)
def test_errors(server: WebServer, path: str, body: Any, status: int) -> None:
    response = post(server, path, body)
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert_valid(ErrorObject, response.json()["error"])


def test_errors_of_anthropics_kind(server: WebServer) -> None:
    assert_valid(AnthropicErrorResponse, post(server, MESSAGES, {"model": RECITER}).json())


def test_an_error_within_a_stream(tiny: WebServer) -> None:
    body = chat_body(num_tokens=3000, model="tiny", timeout=0.3)
    error = streamed(tiny, CHAT, body).error
    assert_valid(ErrorObject, error)
