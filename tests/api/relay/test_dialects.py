"""Chunks are a pure function of a job's events, in OpenAI's shapes."""

from typing import Any

import pytest

from api.errors import ApiError
from api.relay.dialects.interface import Chunk
from api.relay.dialects.openai import FRAMING
from api.relay.dialects.registry import dialect_of
from api.relay.outcomes import error_of
from api.relay.sse import sse_body
from api.stream_view import StreamView
from worker.protocol.event import Delta, Event, Terminal

CHAT = StreamView(endpoint="chat.completions", model="m", created_s=7)
TEXT = StreamView(endpoint="completions", model="m", created_s=7, num_choices=2)
EVENTS: list[Event] = [
    Delta(0, (1,), "Hel"),
    Delta(0, (2,), ""),
    Delta(0, (3,), "lo", "stop"),
    Terminal("succeeded", num_prompt_tokens=5, num_completion_tokens=3, num_cached_tokens=2),
]
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 3,
    "total_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def chunks_of(view: StreamView, events: list[Event]) -> list[Chunk]:
    dialect = dialect_of("id-1", view)
    return [chunk for event in events for chunk in dialect.chunks(event)]


def choice(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def test_a_chat_stream_has_role_text_and_finish_in_this_order() -> None:
    chunks = chunks_of(CHAT, EVENTS)
    assert [chunk["choices"] for chunk in chunks] == [
        [choice({"role": "assistant", "content": ""})],
        [choice({"content": "Hel"})],
        [choice({"content": "lo"})],
        [choice({}, "stop")],
    ]
    envelope = {"id": "id-1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
    assert all({k: v for k, v in chunk.items() if k != "choices"} == envelope for chunk in chunks)


def test_usage_comes_last_with_no_choices_and_only_when_asked_for() -> None:
    asked = StreamView(endpoint="chat.completions", model="m", created_s=7, include_usage=True)
    chunks = chunks_of(asked, EVENTS)
    assert [chunk["usage"] for chunk in chunks] == [None, None, None, None, USAGE]
    assert chunks[-1]["choices"] == []
    assert all("usage" not in chunk for chunk in chunks_of(CHAT, EVENTS))


def test_a_completion_stream_tells_its_choices_apart() -> None:
    events: list[Event] = [Delta(1, (1,), "b"), Delta(0, (2,), "a", "length"), Delta(1, (3,), "c", "stop")]
    assert [chunk["choices"][0] for chunk in chunks_of(TEXT, events)] == [
        {"index": 1, "text": "b", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "a", "logprobs": None, "finish_reason": None},
        {"index": 0, "text": "", "logprobs": None, "finish_reason": "length"},
        {"index": 1, "text": "c", "logprobs": None, "finish_reason": None},
        {"index": 1, "text": "", "logprobs": None, "finish_reason": "stop"},
    ]


def test_whole_answer_and_stream_tell_the_same() -> None:
    whole = dialect_of("id-1", CHAT).whole(EVENTS)
    streamed = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks_of(CHAT, EVENTS))
    assert whole == {
        "id": "id-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": streamed, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
    }


def test_a_stream_resumed_after_any_chunk_gives_exactly_the_rest() -> None:
    numbered = [[chunk] for chunk in enumerate(chunks_of(CHAT, EVENTS), start=1)]
    full = list(sse_body(iter(numbered), FRAMING, with_id=True))
    for after in range(len(numbered) + 1):
        rest = list(sse_body(iter(numbered), FRAMING, with_id=True, after=after))
        assert rest[1:] == full[1 + after :]


def test_a_quiet_stream_gets_comments_that_no_sdk_takes_for_an_event() -> None:
    assert list(sse_body(iter([[]]), FRAMING, with_id=False)) == [b"", b": ping\n", b"data: [DONE]\n\n"]


def test_an_error_within_the_stream_ends_it_in_order() -> None:
    def chunks() -> Any:
        yield [(1, {"a": 1})]
        raise ApiError(500, "broke", "server_error", code="worker_lost")

    assert b"".join(sse_body(chunks(), FRAMING, with_id=False)) == (
        b'data: {"a":1}\n\n'
        b'data: {"error":{"message":"broke","type":"server_error","param":null,"code":"worker_lost"}}\n\n'
        b"data: [DONE]\n\n"
    )


@pytest.mark.parametrize(
    ("terminal", "status", "code"),
    [
        (Terminal("expired", "timeout", "late"), 504, "timeout"),
        (Terminal("cancelled", "client_gone", "gone"), 409, "cancelled"),
        (Terminal("failed", "worker_lost", "died"), 500, "worker_lost"),
        (Terminal("failed", "unreadable", "old"), 500, "unreadable"),
        (Terminal("failed", "invalid_request", "too long"), 400, None),
    ],
)
def test_every_bad_end_has_its_status(terminal: Terminal, status: int, code: str | None) -> None:
    error = error_of(terminal)
    assert error is not None
    assert (error.status, error.code, error.message) == (status, code, terminal.message)
    assert error.headers == ({} if status == 400 else {"x-should-retry": "false"})
    assert error_of(Terminal("succeeded")) is None


def test_what_broke_inside_the_engine_is_for_its_log_alone() -> None:
    error = error_of(Terminal("failed", "engine_error", "TypeError: 'Draw' object cannot be interpreted"))
    assert error is not None
    assert (error.status, error.code) == (500, "engine_error")
    assert error.message == "The model failed while it worked on this request."
