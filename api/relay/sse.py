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
    chunk_lists: Iterator[list[tuple[int, Chunk]]], framing: Framing, *, with_id: bool, after: int = 0
) -> Iterator[bytes]:
    """The body of a stream. `chunk_lists` yields numbered chunks to be sent together, an empty list when it is time for
    a ping, and raises ApiError when the job ends badly.

    `with_id` only for clients that asked to resume: some SDKs misread comments once an id was seen.
    """
    yield b""  # sends the headers: the client learns that it is admitted while it is still queued
    try:
        for chunks in chunk_lists:
            events = [
                b"id: %d\n" % number + framing.event(chunk) if with_id else framing.event(chunk)
                for number, chunk in chunks
                if number > after
            ]
            if events or not chunks:
                yield b"".join(events) or framing.ping
    except ApiError as error:
        yield framing.error(error)
    yield framing.end
