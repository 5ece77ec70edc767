"""A client that reads a stream on a thread of its own, so that a test can break things meanwhile."""

import http.client
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any

from tests.processes import wait_until

QUESTION = [{"role": "user", "content": "Tell me a long story about a river."}]


def chat_body(num_tokens: int, model: str = "tiny", **more: Any) -> dict[str, Any]:
    """A greedy chat request of a fixed length."""
    return {"model": model, "messages": QUESTION, "max_tokens": num_tokens, "temperature": 0, **more}


class StreamReader:
    """Reads one server-sent event stream to its end or until its connection breaks."""

    def __init__(self, url: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> None:
        self.chunks: list[dict[str, Any]] = []
        self.ids: list[int] = []
        self.is_done = False
        self.error: dict[str, Any] | None = None
        self.broken: Exception | None = None
        self.status = 0
        self.pause_s = 0.0  # between two reads: a slow reader
        parts = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        method = "GET" if body is None else "POST"
        payload = None if body is None else json.dumps({**body, "stream": True})
        self._connection.request(method, path, payload, {"Content-Type": "application/json", **headers})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        deltas = (choice["delta"] for chunk in self.chunks for choice in chunk["choices"])
        return "".join(delta.get("content", "") for delta in deltas)

    @property
    def job_id(self) -> str:
        return str(self.chunks[0]["id"])

    def wait_for_chunks(self, number: int) -> "StreamReader":
        wait_until(lambda: len(self.chunks) >= number or not self._thread.is_alive(), f"{number} chunks")
        assert len(self.chunks) >= number, f"the stream ended early: {self.error or self.broken or self.chunks}"
        return self

    def wait_for(self, condition: Callable[[], bool], deadline_s: float = 120.0) -> "StreamReader":
        """Until the condition holds or the stream has ended, whichever comes first."""
        wait_until(lambda: condition() or not self._thread.is_alive(), "the condition or the end", deadline_s)
        return self

    def wait_for_end(self, deadline_s: float = 120.0) -> "StreamReader":
        self._thread.join(deadline_s)
        assert not self._thread.is_alive(), f"the stream did not end after {len(self.chunks)} chunks"
        return self

    def hang_up(self) -> None:
        """Close the connection in the middle, as a client does that loses interest."""
        sock = self._connection.sock
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)

    def _run(self) -> None:
        try:
            response = self._connection.getresponse()
            self.status = response.status
            if response.status != 200:
                self.error = json.loads(response.read())["error"]
                return
            for line in response:
                self._take(line.decode().rstrip("\n"))
                if self.pause_s:
                    time.sleep(self.pause_s)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            self.broken = error
        finally:
            self._connection.close()

    def _take(self, line: str) -> None:
        if line.startswith("id: "):
            self.ids.append(int(line[4:]))
        elif line == "data: [DONE]":
            self.is_done = True
        elif line.startswith("data: "):
            data = json.loads(line[6:])
            if "error" in data:
                self.error = data["error"]
            else:
                self.chunks.append(data)


def chat(stack_url: str, body: dict[str, Any], **headers: str) -> StreamReader:
    return StreamReader(stack_url, "/v1/chat/completions", body, **headers)


def resume(stack_url: str, job_id: str, after: int) -> StreamReader:
    return StreamReader(stack_url, f"/v1/chat/completions/{job_id}/stream?after={after}")
