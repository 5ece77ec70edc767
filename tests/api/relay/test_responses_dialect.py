"""The Responses API's events are a pure function of a job's events, typed and numbered as the SDK has them."""

from typing import Any

import pytest
from msgspec.structs import replace
from openai.types.responses import Response, ResponseStreamEvent

from api.errors import ApiError
from api.relay.answers.parts import Content, Part, Reasoning, ToolCallArguments, ToolCallBegin, tool_call_id
from api.relay.dialects import chat
from api.relay.dialects.interface import Chunk
from api.relay.dialects.responses import ResponsesDialect
from api.stream_view import StreamView
from tests.api.http.schemas import assert_valid
from worker.protocol.event import Delta, Event, Terminal, TokenLogprob, TokenLogprobs

DIGITS = "0123456789abcdef" * 2
ID = f"resp_m-{DIGITS}"
MESSAGE, CALL, THOUGHT = f"msg_{DIGITS}-0", f"fc_{DIGITS}-0", f"rs_{DIGITS}-0"
SHOWN = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {"a": "b"}}
VIEW = StreamView(endpoint="responses", model="m", created_s=7, shown=SHOWN)
DONE = Terminal("succeeded", num_prompt_tokens=5, num_completion_tokens=3, num_cached_tokens=2)
EVENTS: list[Event] = [Delta(0, (1,), "Hel"), Delta(0, (2,), ""), Delta(0, (3,), "lo", "stop"), DONE]
USAGE = {
    "input_tokens": 5,
    "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 2},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 8,
}


class Scripted:
    """A splitter that reads letters: t thinks, c calls, digits are arguments, all else is content."""

    def __init__(self) -> None:
        self.is_thinking = False
        self._num_calls = 0

    def feed(self, text: str) -> list[Part]:
        self.is_thinking = text.endswith("t")
        return [self._part(letter) for letter in text]

    def close(self) -> list[Part]:
        return []

    def _part(self, letter: str) -> Part:
        if letter == "t":
            return Reasoning(letter)
        if letter == "c":
            self._num_calls += 1
            return ToolCallBegin(self._num_calls - 1, f"f{self._num_calls}")
        return ToolCallArguments(self._num_calls - 1, letter) if letter.isdigit() else Content(letter)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "splitter_for", lambda _: Scripted())


def chunks_of(view: StreamView, events: list[Event]) -> list[Chunk]:
    dialect = ResponsesDialect(ID, view)
    chunks = [*dialect.opening(), *(chunk for event in events for chunk in dialect.chunks(event))]
    assert [chunk["sequence_number"] for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert_valid(ResponseStreamEvent, chunk)
    return chunks


def kinds_of(chunks: list[Chunk]) -> list[str]:
    return [chunk["type"].removeprefix("response.") for chunk in chunks]


def test_a_text_answer_opens_and_closes_its_item_and_its_part() -> None:
    chunks = chunks_of(VIEW, EVENTS)
    place = {"item_id": MESSAGE, "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "annotations": [], "logprobs": []}
    item = {"id": MESSAGE, "type": "message", "role": "assistant"}
    whole_part = part | {"text": "Hello"}
    whole_item = item | {"status": "completed", "content": [whole_part]}
    response = {
        "id": ID, "object": "response", "created_at": 7, "completed_at": None, "status": "in_progress", "error": None,
        "incomplete_details": None, "model": "m", "output": [], "usage": None, **SHOWN,
    }  # fmt: skip
    expected: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "Hel", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "lo", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "Hello", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": whole_part},
        {"type": "response.output_item.done", "output_index": 0, "item": whole_item},
        {
            "type": "response.completed",
            "response": response | {"status": "completed", "output": [whole_item], "usage": USAGE},
        },
    ]
    assert chunks == [{**chunk, "sequence_number": i} for i, chunk in enumerate(expected)]


def test_what_is_completed_says_when() -> None:
    assert ResponsesDialect(ID, VIEW).whole([EVENTS[0], EVENTS[-2], replace(DONE, ended_s=9)])["completed_at"] == 9
    told = ResponsesDialect(ID, VIEW).whole([Delta(0, (1,), "Hel", "length"), replace(DONE, ended_s=9)])
    assert (told["status"], told["completed_at"]) == ("incomplete", None)


def test_the_whole_answer_is_the_one_that_the_stream_ends_with() -> None:
    assert ResponsesDialect(ID, VIEW).whole(EVENTS) == chunks_of(VIEW, EVENTS)[-1]["response"]


@pytest.mark.usefixtures("scripted")
def test_thoughts_text_and_calls_are_items_of_their_own_in_the_order_in_which_they_come() -> None:
    chunks = chunks_of(
        VIEW, [Delta(0, (1, 1), "tt"), Delta(0, (1,), "Hi"), Delta(0, (2,), "c12c"), Delta(0, (3,), "", "stop"), DONE]
    )
    thought = [{"type": "reasoning_text", "text": "tt"}]
    text = [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Hi"}]
    done = "completed"
    call_ids = [tool_call_id(ID, 0, 0), tool_call_id(ID, 0, 1)]
    call = {"type": "function_call", "status": done}
    # The token that ends the thoughts is one of theirs.
    assert chunks[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}
    assert chunks[-1]["response"]["output"] == [
        {"id": THOUGHT, "type": "reasoning", "status": done, "summary": [], "content": thought},
        {"id": f"msg_{DIGITS}-1", "type": "message", "status": done, "role": "assistant", "content": text},
        {"id": f"fc_{DIGITS}-2", "call_id": call_ids[0], "name": "f1", "arguments": "12", **call},
        {"id": f"fc_{DIGITS}-3", "call_id": call_ids[1], "name": "f2", "arguments": "", **call},
    ]
    assert kinds_of(chunks) == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "output_item.added", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip


def test_an_answer_that_is_cut_off_is_incomplete_and_so_is_its_last_item() -> None:
    response = chunks_of(VIEW, [Delta(0, (1,), "Hel", "length"), DONE])[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in response["output"]] == ["incomplete"]
    assert response["usage"] == USAGE


def test_an_answer_without_text_is_an_empty_message() -> None:
    chunks = chunks_of(VIEW, [Delta(0, (2,), "", "stop"), DONE])
    assert Response.construct(**chunks[-1]["response"]).output_text == ""
    assert [item["type"] for item in chunks[-1]["response"]["output"]] == ["message"]


@pytest.mark.parametrize(
    ("terminal", "kind", "status", "error"),
    [
        (Terminal("failed", "worker_lost", "died"), "failed", "failed", {"code": "server_error", "message": "died"}),
        (Terminal("expired", "timeout", "late"), "failed", "failed", {"code": "server_error", "message": "late"}),
        (Terminal("failed", "invalid_request", "no"), "failed", "failed", {"code": "invalid_prompt", "message": "no"}),
        (Terminal("cancelled", "cancelled_by_client", "x"), "incomplete", "cancelled", None),
    ],
)
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_bad_end_closes_what_is_open_and_is_told(
    terminal: Terminal, kind: str, status: str, error: dict[str, str] | None, has_begun: bool
) -> None:
    begun: list[Event] = [Delta(0, (1,), "Hel")] if has_begun else []
    last = chunks_of(VIEW, [*begun, terminal])[-1]
    assert (last["type"], last["response"]["status"]) == (f"response.{kind}", status)
    assert (last["response"]["error"], last["response"]["usage"]) == (error, None)
    assert [item["status"] for item in last["response"]["output"]] == ["incomplete"] * has_begun


def test_a_background_response_is_queued_until_its_first_token() -> None:
    view = replace(VIEW, is_background=True)
    assert kinds_of(chunks_of(view, EVENTS))[:4] == ["created", "queued", "in_progress", "output_item.added"]
    assert ResponsesDialect(ID, view).whole([])["status"] == "queued"
    assert ResponsesDialect(ID, view).whole(EVENTS[:1])["status"] == "in_progress"
    assert kinds_of(chunks_of(view, [Terminal("cancelled", "x", "y")])) == ["created", "queued", "incomplete"]


def test_a_warm_up_answers_nothing() -> None:
    chunks = chunks_of(replace(VIEW, is_warm_up=True), [Delta(0, (), "", "length"), DONE])
    assert kinds_of(chunks) == ["created", "in_progress", "completed"]
    assert chunks[-1]["response"]["output"] == []


def test_each_piece_of_text_has_the_logprobs_of_its_tokens() -> None:
    def told(text: str, logprob: float) -> TokenLogprobs:
        token = TokenLogprob(1, logprob, text.encode())
        return TokenLogprobs(token, (token,))

    events: list[Event] = [
        Delta(0, (1,), "He", logprobs=(told("He", -0.5),)),
        Delta(0, (2,), "y", "stop", logprobs=(told("y", float("-inf")),)),
        DONE,
    ]
    chunks = chunks_of(replace(VIEW, tells_logprobs=True), events)

    def entry(text: str, logprob: float, **more: Any) -> dict[str, Any]:
        return {"token": text, "logprob": logprob, **more}

    deltas = [chunk["logprobs"] for chunk in chunks if chunk["type"] == "response.output_text.delta"]
    assert deltas == [
        [entry("He", -0.5, top_logprobs=[entry("He", -0.5)])],
        [entry("y", -9999.0, top_logprobs=[entry("y", -9999.0)])],
    ]
    (done,) = [chunk for chunk in chunks if chunk["type"] == "response.output_text.done"]
    assert done["logprobs"] == deltas[0] + deltas[1]
    (part,) = chunks[-1]["response"]["output"][0]["content"]
    he = entry("He", -0.5, bytes=[72, 101])
    assert part["logprobs"][0] == he | {"top_logprobs": [he]}


def test_an_error_of_the_stream_is_an_event_with_the_next_number() -> None:
    dialect = ResponsesDialect(ID, VIEW)
    assert len(list(dialect.opening())) == 2
    assert dialect.framing.error(ApiError(500, "lost", "server_error", code="job_lost")) == (
        b'event: error\ndata: {"type":"error","sequence_number":2,"code":"job_lost","message":"lost","param":null}\n\n'
    )
    assert (dialect.framing.ping, dialect.framing.end) == (b": ping\n", b"")
