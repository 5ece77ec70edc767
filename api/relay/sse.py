"""Chunks as server-sent events, each flushed at once."""

from collections.abc import Iterator

import msgspec

from api.errors import ApiError
from api.relay.chunks import Chunk

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold the stream back
}
# One newline: a comment followed by a blank line is an (empty) event to several SDKs.
PING = b": ping\n"
DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.encode


def sse_event(number: int, chunk: Chunk, *, with_id: bool) -> bytes:
    """`with_id` only for clients that asked to resume: some SDKs misread comments once an id was seen."""
    head = b"id: %d\n" % number if with_id else b""
    return head + b"data: " + _encode(chunk) + b"\n\n"


def sse_error(error: ApiError) -> bytes:
    """After the first byte the status is spent: the error travels in the stream, and the stream ends."""
    return b"data: " + _encode(error.body()) + b"\n\n"


def sse_body(chunks: Iterator[tuple[int, Chunk] | None], *, with_id: bool, after: int = 0) -> Iterator[bytes]:
    """The body of a stream. `chunks` yields None on a quiet beat and raises ApiError when the job ends badly."""
    yield b""  # sends the headers: the client learns that it is admitted while it is still queued
    try:
        for item in chunks:
            if item is None:
                yield PING
            elif item[0] > after:
                yield sse_event(*item, with_id=with_id)
    except ApiError as error:
        yield sse_error(error)
    yield DONE
