"""A plain HTTP client for tests, below any SDK: bodies as they are sent, answers as they arrive."""

import json
from dataclasses import dataclass
from typing import Any

import httpx
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.api.http.reciter import RECITER
from tests.api.http.schemas import assert_valid
from tests.stack import WebServer

DEADLINE_S = 60.0
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

Json = dict[str, Any]

_client = httpx.Client(timeout=DEADLINE_S)  # one for all: making a client costs more than a request


def chat_body(content: Any = "Where does the river rise?", num_tokens: int = 4, **more: Any) -> Json:
    messages = [{"role": "user", "content": content}]
    return {"model": RECITER, "messages": messages, "max_tokens": num_tokens, "temperature": 0, **more}


def completion_body(prompt: Any, num_tokens: int = 4, **more: Any) -> Json:
    return {"model": RECITER, "prompt": prompt, "max_tokens": num_tokens, "temperature": 0, **more}


def post(server: WebServer, path: str, body: Json | bytes | str, **headers: str) -> httpx.Response:
    content = json.dumps(body) if isinstance(body, dict) else body
    sent = {"Content-Type": "application/json", **headers}
    return _client.post(server.url + path, content=content, headers=sent)


def get(server: WebServer, path: str, **headers: str) -> httpx.Response:
    return _client.get(server.url + path, headers=headers)


def answered(server: WebServer, path: str, body: Json, **headers: str) -> Json:
    """The whole answer of a request that is served."""
    response = post(server, path, body, **headers)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/json"
    whole: Json = response.json()
    assert_valid(ChatCompletion if path == CHAT else Completion, whole)
    return whole


def text_of(whole: Json, index: int = 0) -> str:
    choice = whole["choices"][index]
    assert choice["index"] == index
    text: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return text


def counts(usage: Json) -> tuple[int, int, int]:
    """What a usage must say whatever was cached: prompt, completion and total tokens."""
    assert usage["prompt_tokens"] >= usage["prompt_tokens_details"]["cached_tokens"] >= 0
    return usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


def error_of(response: httpx.Response) -> Json:
    """The error of a refusal, whose body must be the whole envelope and valid JSON."""
    assert response.headers["Content-Type"] == "application/json"
    body = json.loads(response.content, parse_constant=_no_constant)
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str)
    error: Json = body["error"]
    return error


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@dataclass(frozen=True)
class Streamed:
    """A stream read to its end: its chunks, checked for what every stream must be."""

    chunks: list[Json]
    headers: httpx.Headers
    error: Json | None

    def text(self, index: int = 0) -> str:
        pieces = (c for chunk in self.chunks for c in chunk["choices"] if c["index"] == index)
        return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in pieces)

    def pieces(self) -> list[str]:
        choices = (c for chunk in self.chunks for c in chunk["choices"])
        return [text for c in choices if (text := c["text"] if "text" in c else c["delta"].get("content"))]

    def finish(self, index: int = 0) -> str:
        choices = (c for chunk in self.chunks for c in chunk["choices"] if c["index"] == index)
        (reason,) = [c["finish_reason"] for c in choices if c["finish_reason"] is not None]
        return str(reason)

    @property
    def job_id(self) -> str:
        return str(self.chunks[0]["id"])


def streamed(server: WebServer, path: str, body: Json, **headers: str) -> Streamed:
    """The stream of a request that is served."""
    response = post(server, path, {**body, "stream": True}, **headers)
    assert response.status_code == 200, response.text
    events = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    parsed = [json.loads(event) for event in events[:-1]]
    chunks = [event for event in parsed if "error" not in event]
    errors = [event["error"] for event in parsed if "error" in event]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) <= 1
    for chunk in chunks:
        assert_valid(ChatCompletionChunk if path == CHAT else Completion, chunk)
    return Streamed(chunks, response.headers, errors[0] if errors else None)
