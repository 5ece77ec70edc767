"""A WebSocket client for tests: speaks the messages of /v1/ws, and can send any bytes."""

import contextlib
import json
from collections.abc import Callable
from typing import Any, Self

import httpx
import websocket
from websocket import ABNF

from tests.processes import GENEROUS_S
from tests.stack import WebServer

LONG = 3000  # tokens: more than any test waits for

LastTypes = ("done", "error")
Event = dict[str, Any]


def chat_body(words: str, max_tokens: int, **more: Any) -> dict[str, Any]:
    """Greedy, so that the same body has the same answer everywhere."""
    message = {"role": "user", "content": words}
    return {"model": "tiny", "messages": [message], "max_tokens": max_tokens, "temperature": 0, **more}


def completion_body(prompt: Any, max_tokens: int, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **more}


def over_http(web: WebServer, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The whole answer to the same request as a POST."""
    response = httpx.post(f"{web.url}/v1/{path}", json=body, timeout=GENEROUS_S)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


class Client:
    """One WebSocket. Every wait has a generous deadline."""

    def __init__(self, web: WebServer, query: str = "", **options: Any) -> None:
        self.socket: Any = websocket.create_connection(
            web.websocket_url + query, timeout=GENEROUS_S, suppress_origin=True, **options
        )

    def say(self, message: Any) -> None:
        self.socket.send(message if isinstance(message, str) else json.dumps(message))

    def request(self, request_id: str, body: dict[str, Any], **more: Any) -> None:
        endpoint = "chat.completions" if "messages" in body else "completions"
        self.say({"type": "request", "id": request_id, "endpoint": endpoint, "body": body, **more})

    def send_bytes(self, data: bytes) -> None:
        """Past the protocol."""
        self.socket.sock.sendall(data)

    def send_frame(self, opcode: int, payload: bytes, fin: int = 1) -> None:
        self.socket.send_frame(ABNF(fin, 0, 0, 0, opcode, 1, payload))

    def next(self) -> Event:
        event: Event = json.loads(self.socket.recv())
        return event

    def next_frame(self) -> tuple[int, bytes]:
        """Opcode and payload of whatever frame comes next, unanswered."""
        frame = self.socket.recv_frame()
        return frame.opcode, bytes(frame.data)

    def until(self, is_wanted: Callable[[Event], bool]) -> list[Event]:
        """All events up to the first wanted one."""
        events = [self.next()]
        while not is_wanted(events[-1]):
            events.append(self.next())
        return events

    def until_last(self, *request_ids: str) -> dict[str, list[Event]]:
        """The events of these requests, each to its last."""
        by_id: dict[str, list[Event]] = {request_id: [] for request_id in request_ids}
        while not all(events and events[-1]["type"] in LastTypes for events in by_id.values()):
            event = self.next()
            by_id[event["id"]].append(event)
        return by_id

    def start(self, request_id: str, body: dict[str, Any], **more: Any) -> str:
        """Begin a request and wait until its first text arrives; its job's id."""
        self.request(request_id, body, **more)
        chunk = self.until(lambda event: event["id"] == request_id and event.get("seq", 0) >= 2)[-1]
        return str(chunk["data"]["id"])

    def close_code(self) -> int | None:
        """Read to the server's close frame, answer it and read to the end of the connection; None without a code.

        Fails when anything follows the close frame.
        """
        try:
            while (frame := self.next_frame())[0] != ABNF.OPCODE_CLOSE:
                pass
            payload = frame[1]
            self._answer_close(payload)
            rest = self.socket.sock.recv(4096)
            assert rest == b"", f"after the close frame came {rest!r}"
        finally:
            self.drop()
        return int.from_bytes(payload[:2], "big") if payload else None

    def drop(self) -> None:
        """End the TCP connection without a word."""
        self.socket.shutdown()

    def _answer_close(self, payload: bytes) -> None:
        with contextlib.suppress(OSError):  # the server may have ended first
            self.send_frame(ABNF.OPCODE_CLOSE, payload)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(timeout=1)


def chunks_of(events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"] == "chunk"]


def text_of(events: list[Event], choice: int = 0) -> str:
    """The text of one choice in these events, of either endpoint."""
    choices = [c for event in chunks_of(events) for c in event["data"]["choices"] if c["index"] == choice]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)
