"""Anthropic's events, byte for byte, as they lie in tests/api/golden."""

from pathlib import Path

import pytest
from anthropic.types import Message as AnthropicMessage
from pydantic import TypeAdapter

from api.errors import ApiError
from api.relay.dialects.messages import MessagesDialect
from api.relay.sse import sse_body
from api.stream_view import AnswerFormat, StreamView
from worker.protocol.event import Delta, Event, Terminal

GOLDEN = Path(__file__).parents[1] / "golden"
DONE = Terminal("succeeded", num_prompt_tokens=9, num_completion_tokens=5, num_cached_tokens=4)
CALLS: list[Event] = [
    Delta(0, (1,), "I look.\n<tool_call>\n"),
    Delta(0, (2,), '{"name": "rise", "arguments": {"river":'),
    Delta(0, (3,), ' "Isar"}}\n</tool_call>', "stop"),
    DONE,
]
THOUGHTS: list[Event] = [Delta(0, (1,), "Hm."), Delta(0, (2,), "</think>"), Delta(0, (3,), "Yes.", "length"), DONE]
TEXT: list[Event] = [Delta(0, (1,), "It ris"), Delta(0, (2,), ""), Delta(0, (3,), "es", "stop", matched_stop="."), DONE]
EMPTY: list[Event] = [Delta(0, (1,), "", "stop"), DONE]
CUT: list[Event] = [Delta(0, (1,), '<tool_call>\n{"name": "rise", "arguments": {"riv', "length"), DONE]


def view(answer: AnswerFormat) -> StreamView:
    return StreamView(endpoint="messages", model="m", created_s=7, answer=answer, shown={"input_tokens": 9})


KINDS = {
    "text": (AnswerFormat(), TEXT),
    "tools": (AnswerFormat(tools="tagged", tool_names=("rise",)), CALLS),
    "thinking": (AnswerFormat(reasoning="open"), THOUGHTS),
    "empty": (AnswerFormat(), EMPTY),
}


def stream(answer: AnswerFormat, events: list[Event]) -> str:
    dialect = MessagesDialect("msg_1", view(answer))
    chunks = [*dialect.opening(), *(chunk for event in events for chunk in dialect.chunks(event))]
    return b"".join(sse_body(iter([list(enumerate(chunks, start=1))]), dialect.framing, with_id=False)).decode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_what_it_was(kind: str) -> None:
    assert stream(*KINDS[kind]) == (GOLDEN / f"messages-{kind}.txt").read_text()


@pytest.mark.parametrize(
    ("kind", "content", "stop"),
    [
        ("text", [{"type": "text", "text": "It rises"}], ("stop_sequence", ".")),
        (
            "tools",
            [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "ID", "name": "rise", "input": {"river": "Isar"}},
            ],
            ("tool_use", None),
        ),
        (
            "thinking",
            [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Yes."}],
            ("max_tokens", None),
        ),
        ("empty", [], ("end_turn", None)),
    ],
)
def test_the_whole_answer_tells_the_same(kind: str, content: list[object], stop: tuple[str, str | None]) -> None:
    answer, events = KINDS[kind]
    whole = MessagesDialect("msg_1", view(answer)).whole(events)
    TypeAdapter(AnthropicMessage).validate_python(whole, strict=True)
    blocks = [block | ({"id": "ID"} if "id" in block else {}) for block in whole["content"]]
    assert (blocks, (whole["stop_reason"], whole["stop_sequence"])) == (content, stop)
    usage = whole["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (5, 4, 5)


def test_a_call_that_was_cut_off_has_an_empty_input() -> None:
    answer = AnswerFormat(tools="tagged", tool_names=("rise",))
    whole = MessagesDialect("msg_1", view(answer)).whole(CUT)
    assert [block["input"] for block in whole["content"]] == [{}]
    assert whole["stop_reason"] == "max_tokens"


def test_an_error_is_an_event_of_its_own_and_the_last() -> None:
    error = MessagesDialect.framing.error(ApiError(503, "gone", "server_error"))
    assert error == (b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"gone"}}\n\n')
    assert MessagesDialect.framing.end == b""
