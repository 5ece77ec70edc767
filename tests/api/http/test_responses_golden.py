"""Given each kind of stream of the Responses API, its bytes are those of the transcript, ids and times left out."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from api.relay.dialects.responses import ResponsesDialect
from api.relay.sse import sse_body
from api.stream_view import AnswerFormat, StreamView
from tests.api.http.client import post
from tests.api.http.reciter import Recital
from tests.api.http.responses_client import RESPONSES, body, events_of
from tests.stack import WebServer
from worker.protocol.event import Delta, Event, Terminal

TRANSCRIPTS = Path(__file__).parents[1] / "golden"
VIEW = StreamView(endpoint="responses", model="m", created_s=7, shown={"tools": [], "metadata": {}})
DONE = Terminal("succeeded", num_prompt_tokens=9, num_completion_tokens=5)


def assert_golden(name: str, stream: str) -> None:
    shown = re.sub(r"[0-9a-f]{32}", "<id>", stream)
    shown = re.sub(r"call_[0-9a-f]{24}", "call_<id>", shown)
    shown = re.sub(r'"created_at":\d+', '"created_at":0', shown)
    shown = re.sub(r'"cached_tokens":\d+', '"cached_tokens":0', shown)  # they depend on what was asked before
    assert shown == (TRANSCRIPTS / f"responses-{name}.txt").read_text()


@pytest.mark.parametrize(("name", "is_background"), [("text", False), ("background", True)])
def test_what_a_server_sends(server: WebServer, recital: Recital, name: str, is_background: bool) -> None:
    said = "river " * 3
    request = body(said, num_tokens=3, stream=True, instructions="Be brief.", background=is_background)
    stream = post(server, RESPONSES, request).text
    usage = events_of(stream)[-1]["response"]["usage"]
    assert recital.text(usage["input_tokens"], 3) in stream
    assert_golden(name, stream)


@pytest.mark.parametrize(
    ("name", "view", "events"),
    [
        (
            "tools",
            replace(VIEW, answer=AnswerFormat(tools="tagged", tool_names=("rise",))),
            [
                Delta(0, (1,), "I look.\n<tool_call>\n"),
                Delta(0, (2,), '{"name": "rise", "arguments": {"river":'),
                Delta(0, (3,), ' "Isar"}}\n</tool_call>', "stop"),
                DONE,
            ],
        ),
        (
            "reasoning",
            replace(VIEW, answer=AnswerFormat(reasoning="open")),
            [Delta(0, (1,), "Hm."), Delta(0, (2,), "</think>"), Delta(0, (3,), "Yes.", "stop"), DONE],
        ),
        (
            "failed",
            VIEW,
            [Delta(0, (1,), "Hel"), Terminal("failed", "worker_lost", "The workers that ran this request died.")],
        ),
    ],
)
def test_what_other_streams_look_like(name: str, view: StreamView, events: list[Event]) -> None:
    dialect = ResponsesDialect("resp_m-" + "0123456789abcdef" * 2, view)
    chunks = [*dialect.opening(), *(chunk for event in events for chunk in dialect.chunks(event))]
    stream = b"".join(sse_body(iter([list(enumerate(chunks, start=1))]), dialect.framing, with_id=False)).decode()
    assert_golden(name, stream)
