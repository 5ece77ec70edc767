"""Given POST /v1/responses, the answer, its stream and the conversation it may go on with are exact."""

import json
import time
from typing import Any

import httpx

from tests.api.http.client import CHAT, answered, chat_body, error_of, get, post
from tests.api.http.client import text_of as chat_text
from tests.api.http.reciter import CONTEXT, RECITER, Recital
from tests.api.http.responses_client import (
    QUESTION,
    RESPONSES,
    body,
    created,
    ended,
    recited,
    retrieved,
    streamed,
    text_of,
)
from tests.stack import WebServer

UNKNOWN = f"resp_{RECITER}-{'0' * 32}"


def test_a_response_is_what_chat_answers(server: WebServer) -> None:
    response = created(server, body(num_tokens=12, instructions="Be brief."))
    chat = chat_body(num_tokens=12)
    chat["messages"].insert(0, {"role": "system", "content": "Be brief."})
    assert text_of(response) == chat_text(answered(server, CHAT, chat))


def test_a_response_repeats_what_was_asked(server: WebServer) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "metadata": {"topic": "rivers"},
        "top_p": 0.5,
        "user": "u",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "truncation": "auto",
        "max_tool_calls": 3,
    }
    response = created(server, body(**asked))
    assert {name: response[name] for name in asked} == asked
    shown = {name: response[name] for name in ("status", "background", "tool_choice", "tools", "parallel_tool_calls")}
    assert shown == {
        "status": "incomplete", "background": False, "tool_choice": "auto", "tools": [], "parallel_tool_calls": True,
    }  # fmt: skip
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (response["max_output_tokens"], response["temperature"]) == (4, 0)
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "medium"}


def test_a_whole_answer_is_the_one_its_stream_ends_with(server: WebServer, recital: Recital) -> None:
    whole = created(server, body(num_tokens=12))
    events = streamed(server, body(num_tokens=12))
    last = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete"
    assert text_of(last) == text_of(whole) == recited(recital, whole)
    pieces = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(pieces) == text_of(last)
    assert len(pieces) > 4
    for name in ("id", "created_at", "usage", "output"):  # usage: one of them may have found its prompt cached
        del whole[name], last[name]
    assert last == whole


def test_an_answer_that_comes_to_its_end_is_completed(server: WebServer, recital: Recital) -> None:
    content = filler(server, len(recital.prompt("ending")))
    response = created(server, body(content, num_tokens=50))
    assert text_of(response) == "All done."
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    assert [item["status"] for item in response["output"]] == ["completed"]
    assert response["created_at"] <= response["completed_at"] <= time.time()


def test_logprobs_are_told_when_they_are_included(server: WebServer) -> None:
    response = created(server, body(include=["message.output_text.logprobs"], top_logprobs=2))
    (part,) = response["output"][0]["content"]
    assert "".join(token["token"] for token in part["logprobs"]) == part["text"]
    assert [len(token["top_logprobs"]) for token in part["logprobs"]] == [2] * 4
    assert created(server, body(top_logprobs=2))["output"][0]["content"][0]["logprobs"] == []


def test_a_conversation_goes_on_from_the_response_before(server: WebServer, recital: Recital) -> None:
    first = created(server, body(instructions="Be brief."))
    second = created(server, body("And then?", previous_response_id=first["id"]))
    third = created(server, body("And where?", previous_response_id=second["id"]))
    said = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": text_of(first)},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": text_of(second)},
        {"role": "user", "content": "And where?"},
    ]
    # Instructions are not carried over.
    at_once = created(server, body(said))
    assert third["usage"]["input_tokens"] == at_once["usage"]["input_tokens"]
    assert text_of(third) == recited(recital, third) == text_of(at_once)
    assert third["previous_response_id"] == second["id"]


def test_an_item_can_be_named_instead_of_said_again(server: WebServer) -> None:
    first = created(server, body())
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    question = get(server, f"{RESPONSES}/{first['id']}/input_items").json()["data"][0]
    named = created(server, body([{"id": question["id"]}, reference, {"role": "user", "content": "And then?"}]))
    linked = created(server, body("And then?", previous_response_id=first["id"]))
    assert named["usage"]["input_tokens"] == linked["usage"]["input_tokens"]


def test_unknown_references_and_responses_are_refused(server: WebServer) -> None:
    refused = post(server, RESPONSES, body([{"type": "item_reference", "id": f"msg_{'0' * 32}-0"}]))
    assert (refused.status_code, error_of(refused)["param"]) == (404, "input")
    refused = post(server, RESPONSES, body(previous_response_id=UNKNOWN))
    assert (refused.status_code, error_of(refused)["code"]) == (400, "previous_response_not_found")
    assert error_of(refused)["message"] == f"Previous response with id '{UNKNOWN}' not found."
    refused = get(server, f"{RESPONSES}/{UNKNOWN}")
    assert (refused.status_code, error_of(refused)["message"]) == (404, f"Response with id '{UNKNOWN}' not found.")


def test_what_is_not_stored_is_not_found(server: WebServer) -> None:
    response = created(server, body(store=False))
    assert get(server, f"{RESPONSES}/{response['id']}").status_code == 404
    refused = post(server, RESPONSES, body(previous_response_id=response["id"]))
    assert error_of(refused)["code"] == "previous_response_not_found"


def test_truncation_leaves_out_the_oldest_items_and_no_more(server: WebServer) -> None:
    turns: list[dict[str, Any]] = [{"role": "user", "content": "the river rises " * 20} for _ in range(9)]
    refused = post(server, RESPONSES, body(turns))
    assert (refused.status_code, error_of(refused)["code"]) == (400, "context_length_exceeded")
    assert error_of(refused)["param"] == "input"
    response = created(server, body(turns, truncation="auto"))
    num_left_out = next(first for first in range(9) if counted(server, turns[first:]).status_code == 200)
    assert num_left_out > 1
    assert response["usage"]["input_tokens"] == count(server, turns[num_left_out:]) < CONTEXT
    refused = post(server, RESPONSES, body("the river rises " * 400, truncation="auto"))
    assert error_of(refused)["code"] == "context_length_exceeded"


def test_input_tokens_are_counted_as_the_response_counts_them(server: WebServer) -> None:
    for said in (QUESTION, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]):
        assert count(server, said) == created(server, body(said))["usage"]["input_tokens"]


def test_errors_name_the_fields_of_this_endpoint(server: WebServer) -> None:
    for wrong, param in (
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"model": "other"}, "model"),
        ({"generate": False}, "generate"),
        ({"temperature": 3}, "temperature"),
    ):
        assert (error_of(post(server, RESPONSES, body() | wrong))["param"] or "").startswith(param), wrong


def test_a_repeat_under_an_idempotency_key_is_the_same_response(server: WebServer) -> None:
    first = created(server, body(), **{"Idempotency-Key": "river-1"})
    again = created(server, body(), **{"Idempotency-Key": "river-1"})
    assert again == first == retrieved(server, first["id"])


def test_a_response_whose_client_hangs_up_is_cancelled(tiny: WebServer) -> None:
    request = {**body(num_tokens=3000, stream=True), "model": "tiny"}
    with httpx.stream("POST", tiny.url + RESPONSES, json=request, timeout=60) as stream:
        data = next(line for line in stream.iter_lines() if line.startswith("data: "))
        response_id = json.loads(data.removeprefix("data: "))["response"]["id"]
    response = ended(tiny, response_id)
    assert (response["status"], response["usage"], response["error"]) == ("cancelled", None, None)


def filler(server: WebServer, num_tokens: int) -> str:
    """A question that makes a prompt of so many tokens."""
    return " river" * (num_tokens - count(server, " river" * 8) + 8)


def count(server: WebServer, said: Any) -> int:
    answer = counted(server, said).json()
    found: int = answer["input_tokens"]
    assert answer == {"object": "response.input_tokens", "input_tokens": found}
    return found


def counted(server: WebServer, said: Any) -> httpx.Response:
    return post(server, RESPONSES + "/input_tokens", {"model": RECITER, "input": said})
