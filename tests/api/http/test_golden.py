"""Every kind of stream byte for byte, as it lies in tests/api/golden."""

from pathlib import Path

import pytest

from tests.api.http.client import CHAT, COMPLETIONS, Json, chat_body, completion_body
from tests.api.http.reciter import Recital
from tests.api.http.transcripts import transcript
from tests.stack import WebServer

GOLDEN = Path(__file__).parents[1] / "golden"
USAGE = {"stream_options": {"include_usage": True}}
KINDS: dict[str, tuple[str, Json]] = {
    "chat": (CHAT, chat_body(num_tokens=2)),
    "chat-usage": (CHAT, chat_body(num_tokens=2) | USAGE),
    "chat-n": (CHAT, chat_body(num_tokens=1, n=2, service_tier="flex")),
    "chat-logprobs": (CHAT, chat_body(num_tokens=2, logprobs=True, top_logprobs=1)),
    "chat-stop": (CHAT, chat_body(num_tokens=9, stop=" gave")),
    "completion": (COMPLETIONS, completion_body([7], 2)),
    "completion-usage": (COMPLETIONS, completion_body([7], 2) | USAGE),
    "completion-n": (COMPLETIONS, completion_body([[7], [7, 8]], 1, n=2)),
    "completion-logprobs": (COMPLETIONS, completion_body([7], 2, logprobs=1)),
    "completion-echo": (COMPLETIONS, completion_body("The 🐦", 1, echo=True, logprobs=0)),
    "completion-echo-alone": (COMPLETIONS, completion_body("The river", 0, echo=True)),
    "completion-stop": (COMPLETIONS, completion_body([7], 9, stop="ses in")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_what_it_was(server: WebServer, kind: str) -> None:
    assert transcript(server, *KINDS[kind]) == (GOLDEN / f"{kind}.txt").read_text()


def test_the_end_of_a_recital_too(server: WebServer, recital: Recital) -> None:
    body = completion_body(recital.prompt("ending"), 9)
    assert transcript(server, COMPLETIONS, body) == (GOLDEN / "completion-end.txt").read_text()


def test_an_error_within_a_stream_ends_it(tiny: WebServer) -> None:
    """Which chunks come before it is left to the speed of the machine."""
    body = chat_body(num_tokens=4000, model="tiny", timeout=0.3)
    text = transcript(tiny, CHAT, body)
    assert text.endswith((GOLDEN / "chat-error.txt").read_text())
    assert text.count('"error"') == 1
    assert "HTTP/1" not in text
