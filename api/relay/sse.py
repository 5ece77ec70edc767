"""Chunks as server-sent events, each flushed at once."""

from collections.abc import Iterator

from api.errors import ApiError
from api.relay.dialects.interface import Chunk, Framing

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold the stream back
}


def sse_body(
    chunks: Iterator[tuple[int, Chunk] | None], framing: Framing, *, with_id: bool, after: int = 0
) -> Iterator[bytes]:
    """The body of a stream. `chunks` yields None on a quiet beat and raises ApiError when the job ends badly.

    `with_id` only for clients that asked to resume: some SDKs misread comments once an id was seen.
    """
    yield b""  # sends the headers: the client learns that it is admitted while it is still queued
    try:
        for item in chunks:
            if item is None:
                yield framing.ping
            elif item[0] > after:
                head = b"id: %d\n" % item[0] if with_id else b""
                yield head + framing.event(item[1])
    except ApiError as error:
        yield framing.error(error)
    yield framing.end
