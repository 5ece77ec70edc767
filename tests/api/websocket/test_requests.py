"""Given a WebSocket, when a client sends requests on it, each is answered whole under its own id."""

import json
import urllib.request
from typing import Any

import pytest

from tests.api.websocket.client import LONG, Client, chat_body, chunks_of, completion_body, over_http, text_of
from tests.stack import WebServer
from worker.protocol.job import pool_of


def test_a_request_is_accepted_streamed_in_numbered_chunks_and_done_with_its_usage(web: WebServer) -> None:
    body = chat_body("Where does the river rise?", 12)
    expected = over_http(web, "chat/completions", body)
    with Client(web) as client:
        client.request("a", body)
        events = client.until_last("a")["a"]
    chunks = chunks_of(events)
    assert [event["type"] for event in events] == ["accepted"] + ["chunk"] * len(chunks) + ["done"]
    assert pool_of(events[0]["job"]) == "tiny"
    assert [event["seq"] for event in chunks] == list(range(1, len(chunks) + 1))
    assert {event["data"]["id"] for event in chunks} == {events[0]["job"]}
    assert chunks[0]["data"]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert text_of(events) == expected["choices"][0]["message"]["content"]
    assert events[-1] == {"type": "done", "id": "a", "finish_reason": "length", "usage": expected["usage"]}


def test_two_requests_at_once_do_not_disturb_each_other(web: WebServer) -> None:
    chat, completion = chat_body("Name a bird. é 🐦", 60), completion_body("The mill stood still, and", 60)
    with Client(web) as client:
        client.request("chat", chat)
        client.request("🐦 completion", completion)
        events = client.until_last("chat", "🐦 completion")
    whole_chat = over_http(web, "chat/completions", chat)
    whole_completion = over_http(web, "completions", completion)
    assert text_of(events["chat"]) == whole_chat["choices"][0]["message"]["content"]
    assert text_of(events["🐦 completion"]) == whole_completion["choices"][0]["text"]
    assert events["chat"][-1]["usage"] == whole_chat["usage"]
    assert events["🐦 completion"][-1]["usage"] == whole_completion["usage"]


def test_thirty_requests_sent_in_one_breath_are_all_answered(web: WebServer) -> None:
    bodies = {str(i): completion_body([11 + i, 300 + i, 7], 5 + i % 4) for i in range(30)}
    with Client(web) as client:
        for request_id, body in bodies.items():
            client.request(request_id, body)
        events = client.until_last(*bodies)
    for request_id, body in bodies.items():
        assert events[request_id][-1]["usage"]["completion_tokens"] == body["max_tokens"]
    answer = over_http(web, "completions", bodies["17"])
    assert text_of(events["17"]) == answer["choices"][0]["text"]


def test_a_request_with_several_prompts_is_done_with_one_finish_reason(web: WebServer) -> None:
    body = completion_body(["One", "Two, two"], 6)
    expected = over_http(web, "completions", body)
    with Client(web) as client:
        client.request("a", body)
        events = client.until_last("a")["a"]
    assert [text_of(events, i) for i in (0, 1)] == [choice["text"] for choice in expected["choices"]]
    assert (events[-1]["finish_reason"], events[-1]["usage"]) == ("length", expected["usage"])


def test_choices_logprobs_and_echo_are_those_of_a_post(web: WebServer) -> None:
    chat = chat_body("Name a bird.", 6, n=3, seed=5, temperature=1, logprobs=True, top_logprobs=2)
    echo = completion_body("The mill", 0, echo=True, logprobs=1)
    with Client(web) as client:
        client.request("chat", chat)
        client.request("echo", echo)
        events = client.until_last("chat", "echo")
    whole_chat, whole_echo = over_http(web, "chat/completions", chat), over_http(web, "completions", echo)
    for i, choice in enumerate(whole_chat["choices"]):
        assert text_of(events["chat"], i) == choice["message"]["content"]
        told = [event["data"]["choices"][0] for event in chunks_of(events["chat"])]
        tokens = [token for piece in told if piece["index"] == i and piece["logprobs"] for token in
                  piece["logprobs"]["content"]]  # fmt: skip
        assert tokens == choice["logprobs"]["content"]
    assert text_of(events["echo"]) == whole_echo["choices"][0]["text"] == "The mill"
    assert [events[name][-1]["usage"] for name in ("chat", "echo")] == [whole_chat["usage"], whole_echo["usage"]]
    assert events["echo"][-1]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [True, None])
def test_stream_may_be_true_or_null(web: WebServer, stream: bool | None) -> None:
    with Client(web) as client:
        client.request("a", completion_body("Rain", 2, stream=stream))
        assert client.until_last("a")["a"][-1]["type"] == "done"


def test_an_id_may_be_used_again_when_its_request_has_ended(web: WebServer) -> None:
    with Client(web) as client:
        for _ in range(5):
            client.request("a", completion_body("Rain", 1))
            assert client.until_last("a")["a"][-1]["type"] == "done"


def test_a_duplicate_of_a_live_id_is_refused_and_the_running_one_goes_on(web: WebServer) -> None:
    body = completion_body("Once", 150)
    with Client(web) as client:
        client.start("a", body)
        client.request("a", completion_body("Twice", 3))
        refusal = client.until(lambda event: event["type"] == "error")[-1]
        rest = client.until(lambda event: event["type"] == "done")
    assert (refusal["id"], refusal["error"]["code"], refusal["error"]["param"]) == ("a", "duplicate_id", "id")
    assert rest[-1]["usage"]["completion_tokens"] == 150


@pytest.mark.parametrize(
    ("message", "request_id", "param"),
    [
        ("", None, None),
        ("no json", None, None),
        ('{"type": "request", "id": "a"', None, None),
        ("[]", None, None),
        ('"text"', None, None),
        ("[" * 20_000 + "]" * 20_000, None, None),
        ('{"id": "a", "type": "request", "endpoint": "completions", "body": {"prompt": "\\ud800"}}', None, None),
        ('{"a": NaN}', None, "a"),
        ({"id": "a"}, "a", None),
        ({"type": "hello", "id": "a"}, "a", "type"),
        ({"type": 7, "id": "a"}, "a", "type"),
        ({"type": "cancel"}, None, None),
        ({"type": "cancel", "id": 7}, None, "id"),
        ({"type": "cancel", "id": ""}, None, "id"),
        ({"type": "cancel", "id": "x" * 129}, None, "id"),
        ({"type": "cancel", "id": "nobody"}, "nobody", "id"),
        ({"type": "request", "id": "a", "endpoint": "embeddings", "body": {}}, "a", "endpoint"),
        ({"type": "request", "id": "a", "endpoint": "completions"}, "a", None),
        ({"type": "request", "id": "a", "endpoint": "completions", "body": [1]}, "a", "body"),
        ({"type": "request", "id": "a", "endpoint": "completions", "body": {}}, "a", "model"),
        ({"type": "resume", "id": "a"}, "a", None),
        ({"type": "resume", "id": "a", "job": "x", "after": -1}, "a", "after"),
        ({"type": "resume", "id": "a", "job": "x", "after": "3"}, "a", "after"),
        ({"type": "resume", "id": "a", "job": "nonsense"}, "a", None),
    ],
)
def test_a_bad_message_is_answered_with_an_error_and_the_socket_lives(
    web: WebServer, message: Any, request_id: str | None, param: str | None
) -> None:
    with Client(web) as client:
        client.say(message)
        answer = client.next()
        assert (answer["type"], answer["id"]) == ("error", request_id)
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert (answer["error"]["type"], answer["error"]["param"]) == ("invalid_request_error", param)
        client.request("after", completion_body("Rain", 1))
        assert client.until_last("after")["after"][-1]["type"] == "done"


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"stream": False}, "stream", None),
        ({"temperature": 7}, "temperature", None),
        ({"model": "gpt-7"}, "model", "model_not_found"),
        ({"messages": []}, "messages", None),
        ({"messages": [{"role": "user", "content": "long " * 9000}]}, "messages", "context_length_exceeded"),
    ],
)
def test_a_request_is_checked_as_a_post_is(
    web: WebServer, change: dict[str, Any], param: str, code: str | None
) -> None:
    with Client(web) as client:
        client.request("a", chat_body("Hello", 2) | change)
        answer = client.next()
    assert (answer["type"], answer["id"]) == ("error", "a")
    assert (answer["error"]["param"], answer["error"]["code"]) == (param, code)


@pytest.mark.parametrize("grace", [0, -1, "5", True])
def test_a_resume_grace_that_is_no_positive_number_is_refused(web: WebServer, grace: Any) -> None:
    with Client(web) as client:
        client.request("a", completion_body("Rain", 1), resume_grace_s=grace)
        assert client.next()["error"]["param"] == "resume_grace_s"


def test_more_requests_than_one_socket_may_run_are_refused_until_one_ends(strict: WebServer) -> None:
    with Client(strict, "?api_key=sesame") as client:
        client.start("a", completion_body("Once", LONG))
        client.start("b", completion_body("Twice", LONG))
        client.request("c", completion_body("Thrice", 1))
        refusal = client.until(lambda event: event["type"] == "error")[-1]
        assert (refusal["id"], refusal["error"]["code"]) == ("c", "rate_limit_exceeded")
        client.say({"type": "cancel", "id": "a"})
        client.until(lambda event: event["type"] == "done" and event["id"] == "a")
        client.request("c", completion_body("Thrice", 1))
        client.until(lambda event: event["type"] == "done" and event["id"] == "c")


def test_the_metrics_count_open_sockets_and_their_requests(web: WebServer) -> None:
    with Client(web) as client:
        client.request("a", completion_body("Rain", 1))
        client.until_last("a")
        text = over_http_metrics(web)
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["headrace_websockets_open"]) >= 1
    assert float(lines['headrace_requests_admitted_total{endpoint="completions"}']) >= 1


def over_http_metrics(web: WebServer) -> str:
    with urllib.request.urlopen(web.url + "/metrics") as response:
        text: str = response.read().decode()
    return text


def test_what_a_client_says_may_come_in_many_fragments(web: WebServer) -> None:
    message = {"type": "request", "id": "ü", "endpoint": "completions", "body": completion_body("Gruß 🐦", 2)}
    data = json.dumps(message, ensure_ascii=False).encode()
    with Client(web) as client:
        client.send_frame(1, data[:1], fin=0)
        for i in range(1, len(data)):
            client.send_frame(0, data[i : i + 1], fin=0)
            if i % 50 == 0:
                client.send_frame(9, b"between two fragments")
        client.send_frame(0, b"", fin=1)
        assert client.until_last("ü")["ü"][-1]["type"] == "done"
