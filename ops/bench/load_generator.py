"""Asks a server as many clients at once would, and keeps what came back with the times it came.

On a small machine the generator takes processor time from the server it measures. So while a workload runs it does
nothing but note bytes and times: HTTP, event stream and JSON are taken apart when the last answer has ended.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"
TIMEOUT_S = 600.0


@dataclass
class Exchange:
    """One request and the bytes that answered it. Times are those of `time.perf_counter`, in seconds."""

    began_s: float
    arrivals: list[tuple[float, bytes]] = field(default_factory=list)
    failure: str = ""


def request_bytes(port: int, path: str, body: dict[str, Any]) -> bytes:
    """A POST whose connection the server closes after the answer, so that the end needs no parsing to be seen."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + content


def drive(port: int, requests: Sequence[bytes], concurrency: int) -> tuple[list[Exchange], float]:
    """Send all requests, `concurrency` at a time; what came back, and the seconds from first to last."""
    return asyncio.run(_drive(port, requests, concurrency))


async def _drive(port: int, requests: Sequence[bytes], concurrency: int) -> tuple[list[Exchange], float]:
    exchanges: list[Exchange] = []
    waiting = iter(requests)
    began_s = time.perf_counter()
    await asyncio.gather(*(_client(port, waiting, exchanges) for _ in range(min(concurrency, len(requests)))))
    return exchanges, time.perf_counter() - began_s


async def _client(port: int, waiting: Iterator[bytes], exchanges: list[Exchange]) -> None:
    for request in waiting:
        exchanges.append(await exchange(port, request))


async def exchange(port: int, request: bytes, timeout_s: float = TIMEOUT_S) -> Exchange:
    """One request on a connection of its own. What goes wrong is told in `failure`, never raised."""
    result = Exchange(time.perf_counter())
    loop = asyncio.get_running_loop()
    transport = None
    try:
        async with asyncio.timeout(timeout_s):
            transport, connection = await loop.create_connection(lambda: _Connection(result), HOST, port)
            transport.write(request)
            await connection.is_over
    except TimeoutError:
        result.failure = f"no end within {timeout_s:g} s"
    except OSError as error:
        result.failure = f"{type(error).__name__}: {error}"
    finally:
        if transport is not None:
            transport.close()
    return result


class _Connection(asyncio.Protocol):
    def __init__(self, result: Exchange) -> None:
        self._result = result
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._result.arrivals.append((time.perf_counter(), data))

    def connection_lost(self, error: Exception | None) -> None:
        if self.is_over.done():
            return
        if error is None:
            self.is_over.set_result(None)
        else:
            self.is_over.set_exception(error)
