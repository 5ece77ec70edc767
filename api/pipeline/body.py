"""The bytes of a request's body, within limits of size and time."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import gevent

from api.errors import (
    CLOSE,
    ApiError,
    payload_too_large,
    request_stalled,
    request_timeout,
    unsupported_media_type,
)

READ_SIZE = 64 * 1024  # bytes
DISCARD_FACTOR = 16  # of a body that is refused, so many times the limit is read and thrown away ...
DISCARD_S = 5.0  # ... for so long


class _Input(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _TooLateError(BaseException):
    """Not an Exception, so that the handler of read errors does not swallow it."""


def read_body(environ: Mapping[str, Any], max_bytes: int, timeout_s: float) -> bytes:
    """The whole body of a WSGI request, whether of declared length or chunked.

    Raises ApiError: 400 when the body breaks off, 408 when it has not arrived within `timeout_s`, 413 when it is
    larger than `max_bytes`, 415 when it is compressed.
    """
    body = _Body(environ, max_bytes)
    with _within(timeout_s, request_timeout):
        data = b"".join(body.pieces())
    body.check_size(len(data))
    return data


def body_pieces(environ: Mapping[str, Any], max_bytes: int, timeout_s: float) -> Iterator[bytes]:
    """The same for a body too large to be held in memory: pieces of READ_SIZE, each within `timeout_s`.

    So a slow client has all the time it needs, and one that stops has not.
    """
    body = _Body(environ, max_bytes)
    pieces, size = body.pieces(), 0
    while size <= max_bytes:
        with _within(timeout_s, request_stalled):
            piece = next(pieces, b"")
        if not piece:
            break
        size += len(piece)
        if size <= max_bytes:
            yield piece
    body.check_size(size)


def discard_body(environ: Mapping[str, Any], max_bytes: int) -> None:
    """Most clients read no answer before they have sent everything, so take a while longer what is on its way."""
    source: _Input = environ["wsgi.input"]
    left = DISCARD_FACTOR * max_bytes
    with contextlib.suppress(_TooLateError), gevent.Timeout(DISCARD_S, _TooLateError()):
        while left > 0:
            try:
                part = source.read(READ_SIZE)
            except Exception:
                return
            left = left - len(part) if part else 0
            gevent.sleep(0)  # a client that is fast enough would never let the others, and the clock, have a turn


class _Body:
    """The body of a WSGI request, of which at most one byte more than `max_bytes` is read."""

    def __init__(self, environ: Mapping[str, Any], max_bytes: int) -> None:
        _check_encoding(environ.get("HTTP_CONTENT_ENCODING", ""))
        self._environ = environ
        self._length = _declared_length(environ)
        self._max_bytes = max_bytes

    def pieces(self) -> Iterator[bytes]:
        """None of a body that says itself that it is too large."""
        wanted = self._max_bytes + 1 if self._length is None else self._length
        if self._length is not None and self._length > self._max_bytes:
            return
        while wanted > 0 and (part := _read_part(self._environ["wsgi.input"], wanted)):
            wanted -= len(part)
            yield part

    def check_size(self, size: int) -> None:
        """`size` bytes came. Raises ApiError 400 or 413."""
        if max(size, self._length or 0) > self._max_bytes:
            discard_body(self._environ, self._max_bytes)
            raise payload_too_large(self._max_bytes)
        if self._length is not None and size < self._length:
            raise _broken_off()


@contextmanager
def _within(timeout_s: float, error: Callable[[float], ApiError]) -> Iterator[None]:
    too_late = _TooLateError()
    try:
        with gevent.Timeout(timeout_s, too_late):
            yield
    except _TooLateError as raised:
        if raised is not too_late:
            raise
        raise error(timeout_s) from None


def _check_encoding(encoding: str) -> None:
    if encoding.strip().lower() not in {"", "identity"}:
        message = f"Content-Encoding {encoding[:40]!r} is not supported; send the body as it is."
        raise unsupported_media_type(message, CLOSE)


def _declared_length(environ: Mapping[str, Any]) -> int | None:
    """Bytes the body will have, or None for a chunked one, whose end the server shows as the end of the input."""
    if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
        return None
    declared = environ.get("CONTENT_LENGTH") or "0"
    if not (declared.isascii() and declared.isdigit() and len(declared) < 20):
        raise ApiError(400, "The Content-Length header is not a number.", headers=CLOSE)
    return int(declared)


def _read_part(source: _Input, wanted: int) -> bytes:
    try:
        return source.read(min(READ_SIZE, wanted))
    except Exception as error:  # the server's reader has errors of its own for each way of breaking chunks
        raise _broken_off() from error


def _broken_off() -> ApiError:
    return ApiError(400, "The request body ended too early or is malformed.", headers=CLOSE)
