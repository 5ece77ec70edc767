"""The Responses API over plain HTTP: bodies as they are sent, events as they arrive, each held against the SDK."""

import json
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent

from tests.api.http.client import Json, get, post
from tests.api.http.reciter import RECITER, Recital
from tests.api.http.schemas import assert_valid
from tests.processes import wait_until
from tests.stack import WebServer

RESPONSES = "/v1/responses"
QUESTION = "Where does the river rise?"
ENDED = ("completed", "incomplete", "failed", "cancelled")


def body(input: Any = QUESTION, num_tokens: int = 4, **more: Any) -> Json:
    return {"model": RECITER, "input": input, "max_output_tokens": num_tokens, "temperature": 0, **more}


def created(server: WebServer, request: Json, **headers: str) -> Json:
    """The Response of a request that is served."""
    answer = post(server, RESPONSES, request, **headers)
    assert answer.status_code == 200, answer.text
    response: Json = answer.json()
    assert_valid(Response, response)
    return response


def retrieved(server: WebServer, response_id: str, **headers: str) -> Json:
    answer = get(server, f"{RESPONSES}/{response_id}", **headers)
    assert answer.status_code == 200, answer.text
    response: Json = answer.json()
    assert_valid(Response, response)
    return response


def ended(server: WebServer, response_id: str) -> Json:
    """A background response, once it has ended."""
    wait_until(lambda: retrieved(server, response_id)["status"] in ENDED, "the response has ended")
    return retrieved(server, response_id)


def streamed(server: WebServer, request: Json, **headers: str) -> list[Json]:
    return events_of(post(server, RESPONSES, {**request, "stream": True}, **headers).text)


def events_of(text: str) -> list[Json]:
    """Of a stream, each told by its type and numbered without a gap."""
    blocks = text.replace(": ping\n", "").split("\n\n")
    assert blocks.pop() == ""
    events: list[Json] = []
    for block in blocks:
        kind, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {event['type']}"
        assert_valid(ResponseStreamEvent, event)
        events.append(event)
    first = events[0]["sequence_number"]
    assert [event["sequence_number"] for event in events] == list(range(first, first + len(events)))
    return events


def text_of(response: Json) -> str:
    parts = (part for item in response["output"] if item["type"] == "message" for part in item["content"])
    return "".join(part["text"] for part in parts)


def recited(recital: Recital, response: Json) -> str:
    """What the model says after a prompt of that length."""
    usage = response["usage"]
    return recital.text(usage["input_tokens"], usage["output_tokens"])
