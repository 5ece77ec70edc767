"""A server for the load generator to ask: answers of known content, cut where it hurts."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WORDS = ("one", " two", " three")
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 2}}


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": fields}])


def stream() -> bytes:
    """A role, three words, usage, the end."""
    words = b"".join(delta(content=word) for word in WORDS)
    return delta(role="assistant", content="") + words + event(choices=[], usage=USAGE) + b"data: [DONE]\n\n"


def chunked(body: bytes, size: int) -> bytes:
    """The body in chunks of `size` bytes, as HTTP/1.1 sends a stream."""
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts) + b"0\r\n\r\n"


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines]).encode() + b"\r\n\r\n"


STREAMED = head("Content-Type: text/event-stream", "Transfer-Encoding: chunked")


class FakeServer:
    """Answers as soon as `concurrency` requests wait, all of them, so that the number that wait at once is exact."""

    def __init__(self, concurrency: int) -> None:
        self.port = 0
        self.bodies: list[dict[str, Any]] = []
        self.most_at_once = 0
        self._concurrency = concurrency
        self._waiting = 0
        self._everyone_is_here = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request_head = await reader.readuntil(b"\r\n\r\n")
        length = int(request_head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        self.bodies.append(json.loads(await reader.readexactly(length)))
        assert b"\r\nConnection: close\r\n" in request_head
        await self._wait_for_the_others()
        for piece in (STREAMED, *(chunked(stream(), 40)[i : i + 33] for i in range(0, len(chunked(stream(), 40)), 33))):
            writer.write(piece)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _wait_for_the_others(self) -> None:
        self._waiting += 1
        self.most_at_once = max(self.most_at_once, self._waiting)
        if self._waiting == self._concurrency:
            self._everyone_is_here.set()
            self._everyone_is_here, self._waiting = asyncio.Event(), 0
        else:
            await self._everyone_is_here.wait()


@contextmanager
def fake_server(concurrency: int) -> Iterator[FakeServer]:
    """The server on a thread of its own. The number of requests must be a multiple of `concurrency`."""
    started, stopping = threading.Event(), asyncio.Event()
    server = FakeServer(concurrency)
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with await asyncio.start_server(server.answer, "127.0.0.1", 0) as listener:
            server.port = listener.sockets[0].getsockname()[1]
            started.set()
            await stopping.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(60)
    yield server
    loop.call_soon_threadsafe(stopping.set)
    thread.join(60)
