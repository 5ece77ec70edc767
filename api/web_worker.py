"""gunicorn's gevent worker, whose own errors are this API's: requests too broken to reach the app answer in JSON."""

import contextlib
import http
import socket
import time
from typing import Any

import msgspec
from gunicorn.http.errors import (
    ChunkMissingTerminator,
    ExpectationFailed,
    ForbiddenProxyRequest,
    InvalidChunkExtension,
    InvalidChunkSize,
    LimitRequestHeaders,
    LimitRequestLine,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.workers.ggevent import GeventWorker

from api.errors import ApiError, internal

_STATUS_BY_ERROR = {
    LimitRequestLine: 414,
    LimitRequestHeaders: 431,
    ExpectationFailed: 417,
    UnsupportedTransferCoding: 501,
    ForbiddenProxyRequest: 403,
}
# Seen here only in a body that nobody wanted, after the answer to its request: a second answer would be taken for that
# of the next request.
_AFTER_THE_ANSWER = (InvalidChunkSize, InvalidChunkExtension, ChunkMissingTerminator)
_MAX_QUOTED = 200  # characters of what a client sent, repeated to it
_LINGER_S = 1.0
_LINGER_BYTES = 1024 * 1024


class WebWorker(GeventWorker):  # type: ignore[misc]
    """Answers what gunicorn cannot parse, and crashes outside the app, with the JSON error envelope."""

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:  # noqa: ARG002
        """Called by gunicorn in place of a response; it closes the connection afterwards."""
        error = _error_of(exc)
        if error.status == 500:
            self.log.exception("error outside the app")
        else:
            self.log.warning("bad request from %s: %s", addr[0] if addr else "a local socket", error.message)
        if isinstance(exc, _AFTER_THE_ANSWER):
            return
        with contextlib.suppress(OSError):
            client.sendall(_response_bytes(error))
            _linger(client)


def _error_of(exc: BaseException) -> ApiError:
    if not isinstance(exc, ParseException):
        return internal()
    status = _STATUS_BY_ERROR.get(type(exc), 400)
    return ApiError(status, f"The request is not valid HTTP: {str(exc)[:_MAX_QUOTED]}", code="bad_http")


def _response_bytes(error: ApiError) -> bytes:
    body = msgspec.json.encode(error.body())
    head = (
        f"HTTP/1.1 {error.status} {http.HTTPStatus(error.status).phrase}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _linger(client: Any) -> None:
    """Closing at once would reset the connection, and a client that is still sending would never see the answer."""
    client.shutdown(socket.SHUT_WR)
    give_up_at, num_left = time.monotonic() + _LINGER_S, _LINGER_BYTES
    while num_left > 0 and (left_s := give_up_at - time.monotonic()) > 0:
        client.settimeout(left_s)
        data = client.recv(64 * 1024)
        if not data:
            return
        num_left -= len(data)
