"""The streams byte for byte: what SDKs and proxies parse."""

import http.client
import json
import signal
from typing import Any

import pytest

from tests.api.http.client import (
    CHAT,
    COMPLETIONS,
    DEADLINE_S,
    chat_body,
    completion_body,
    get,
    post,
    streamed,
)
from tests.api.http.conftest import Servers
from tests.api.http.reciter import RECITER
from tests.api.http.transcripts import anonymous, transcript
from tests.processes import wait_until
from tests.stack import LOOPBACK, WebServer
from tests.streams import StreamReader

FIRST, SECOND = " that", " gave"  # what the model recites after the template of one short question
CHUNK = f'{{"id":"ID","object":"chat.completion.chunk","created":0,"model":"{RECITER}","choices":'
TEXT = f'{{"id":"ID","object":"text_completion","created":0,"model":"{RECITER}","choices":'
ROLE = '[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
LAST = '[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]'


def content(text: str) -> str:
    return f'[{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":null}}]'


def piece(text: str, finish: str = "null") -> str:
    return f'[{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{finish}}}]'


def events(*data: str) -> str:
    return "".join(f"data: {text}\n\n" for text in (*data, "[DONE]"))


@pytest.mark.parametrize("options", [{}, {"include_usage": False}, {"include_usage": None}, None])
def test_without_include_usage_no_chunk_has_usage(server: WebServer, options: Any) -> None:
    body = chat_body(num_tokens=1, stream_options=options)
    assert transcript(server, CHAT, body) == events(
        CHUNK + ROLE + "}", CHUNK + content(FIRST) + "}", CHUNK + LAST + "}"
    )


def test_the_transcript_of_a_resumable_stream_and_of_its_rest(server: WebServer) -> None:
    response = post(server, CHAT, chat_body(num_tokens=2, stream=True), **{"Headrace-Resume": "true"})
    blocks = [ROLE, content(FIRST), content(SECOND), LAST]
    lines = [f"id: {i}\ndata: {CHUNK}{block}}}\n\n" for i, block in enumerate(blocks, start=1)]
    assert anonymous(response.text) == "".join(lines) + "data: [DONE]\n\n"
    path = f"{CHAT}/{response.headers['x-headrace-job']}/stream"
    assert anonymous(get(server, path + "?after=2").text) == "".join(lines[2:]) + "data: [DONE]\n\n"
    assert anonymous(get(server, path, **{"Last-Event-ID": "3"}).text) == "".join(lines[3:]) + "data: [DONE]\n\n"
    assert get(server, path + "?after=4").text == "data: [DONE]\n\n"


def test_the_headers_of_a_stream_keep_proxies_from_holding_it_back(server: WebServer) -> None:
    headers = streamed(server, CHAT, chat_body()).headers
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in headers


def test_chunks_come_as_the_tokens_are_made(servers: Servers, tiny: WebServer) -> None:
    reader = StreamReader(tiny.url, CHAT, chat_body(num_tokens=4000, model="tiny"))
    reader.wait_for_chunks(3)
    assert servers.queues["tiny"].snapshot().num_running == 1
    reader.hang_up()


def test_role_comes_first_and_once_and_done_comes_last(server: WebServer) -> None:
    stream = streamed(server, CHAT, chat_body(num_tokens=20))
    deltas = [chunk["choices"][0]["delta"] for chunk in stream.chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(set(delta) == {"content"} for delta in deltas[1:-1])
    assert deltas[-1] == {}


def test_a_quiet_stream_is_kept_alive_by_comments_of_one_line(servers: Servers, strict: WebServer) -> None:
    """The worker is stopped for a moment, so that nothing comes."""
    connection = http.client.HTTPConnection(LOOPBACK, strict.port, timeout=DEADLINE_S)
    servers.worker.send(signal.SIGSTOP)
    try:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer sesame"}
        connection.request("POST", COMPLETIONS, json.dumps(completion_body([7], 1, stream=True)), headers)
        response = connection.getresponse()
        assert response.readline() == b": ping\n"
    finally:
        servers.worker.send(signal.SIGCONT)
    lines = response.read().decode()
    connection.close()
    while lines.startswith(": ping\n"):
        lines = lines.removeprefix(": ping\n")
    assert anonymous(lines) == events(TEXT + piece(" river") + "}", TEXT + piece("", finish='"length"') + "}")
    wait_until(lambda: len(servers.queues[RECITER].snapshot().workers) == 1, "the worker's lease lives")
