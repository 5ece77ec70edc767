"""Requests that are valid JSON and odd: each gets an answer of its own, and nobody else notices."""

from typing import Any

import pytest

from tests.api.http.client import COMPLETIONS, Json, chat_body, completion_body, error_of, get, post
from tests.api.http.reciter import RECITER
from tests.stack import WebServer

RESPONSES = "/v1/responses"
HUGE = 2**64
DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, completion_body([7], min_tokens=HUGE), "min_tokens"),
        (COMPLETIONS, completion_body([7] * 300, 0, n=128, echo=True, logprobs=5), "echo"),
        (RESPONSES, {"model": RECITER, "input": "Hm?", "max_output_tokens": HUGE}, "max_output_tokens"),
        (RESPONSES, {"model": RECITER, "input": "Hm?", "max_tool_calls": HUGE}, "max_tool_calls"),
        (RESPONSES, {"model": RECITER, "input": "Hm?", "user": "x" * 600}, "user"),
    ],
)
def test_what_is_far_too_large_is_refused_by_name(server: WebServer, path: str, body: Json, param: str) -> None:
    response = post(server, path, body)
    assert (response.status_code, error_of(response)["param"]) == (400, param)


def test_very_many_short_items_are_joined_at_once(server: WebServer) -> None:
    items = [{"role": "system", "content": "x" * 20}] * 20_000
    response = post(server, RESPONSES + "/input_tokens", {"model": RECITER, "input": items})
    assert error_of(response)["code"] == "context_length_exceeded"


@pytest.mark.parametrize("body", [{"text": {"format": {"type": "text", "x": DEEP}}}, {"tools": [{"x": DEEP}]}])
def test_deep_nesting_is_no_crash(server: WebServer, body: Json) -> None:
    response = post(server, RESPONSES, {"model": RECITER, "input": "Hm?", "max_output_tokens": 1, **body})
    assert response.status_code in (200, 400), response.text


def test_the_bare_key_works_on_every_route(strict: WebServer) -> None:
    key = {"x-api-key": "sesame"}
    assert post(strict, "/v1/chat/completions", chat_body(num_tokens=1), **key).status_code == 200
    assert get(strict, "/v1/models", **key).status_code == 200
    assert error_of(get(strict, RESPONSES + "/resp_none", **key))["code"] != "invalid_api_key"
