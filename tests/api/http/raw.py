"""A client that sends any bytes, for what no HTTP library would send."""

import json
import socket
from http.client import HTTPResponse
from types import TracebackType
from typing import Any, Self

from tests.api.http.client import DEADLINE_S
from tests.stack import LOOPBACK, WebServer

HOST = b"Host: x\r\n"


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """A well-formed request; a body has its length and JSON's type."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class RawConnection:
    """One TCP connection to a server."""

    def __init__(self, server: WebServer) -> None:
        self.socket = socket.create_connection((LOOPBACK, server.port), DEADLINE_S)

    def send(self, data: bytes) -> Self:
        self.socket.sendall(data)
        return self

    def response(self, method: str = "GET") -> tuple[HTTPResponse, bytes]:
        """The next response and its body. Bytes that come after it are lost: one response a call."""
        response = HTTPResponse(self.socket, method=method)
        response.begin()
        return response, response.read()

    def error(self) -> tuple[int, dict[str, Any]]:
        """Status and error of the next response, which must carry the JSON envelope."""
        response, body = self.response()
        assert response.headers["Content-Type"] == "application/json"
        error: dict[str, Any] = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return response.status, error

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.socket.close()
