"""The public API of files and batches, as the command line uses it. Needs nothing but the standard library."""

import http.client
import json
import os
import secrets
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

Json = dict[str, Any]

_TIMEOUT_S = 120.0
_PIECE = 256 * 1024  # bytes


class Refused(Exception):
    """The server said no, or cannot be reached. `is_passing`: the same may work a moment later."""

    def __init__(self, message: str, *, is_passing: bool) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class BatchClient:
    """`url` is the server's, with or without its /v1. Every method raises Refused."""

    def __init__(self, url: str, api_key: str) -> None:
        parts = urllib.parse.urlsplit(url.rstrip("/").removesuffix("/v1"))
        if not _is_usable(parts):
            raise Refused(f"HEADRACE_URL={url}: expected http://HOST:PORT", is_passing=False)
        self._url = parts
        if not (api_key.isascii() and api_key.isprintable()):  # the key is not repeated
            raise Refused("HEADRACE_API_KEY: must be printable ASCII on one line", is_passing=False)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def upload(self, path: Path) -> Json:
        """The new file. It is sent as it is read."""
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{_quoted(path.name)}"\r\n\r\n'
        ).encode()
        tail = f"\r\n--{boundary}--\r\n".encode()
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            headers = {
                "Content-Type": f"multipart/form-data; boundary={boundary}",
                "Content-Length": str(len(head) + size + len(tail)),
            }
            return self._ask("POST", "/v1/files", _form(head, file, tail), headers)

    def create(self, file_id: str, endpoint: str, window: str, metadata: dict[str, str]) -> Json:
        order = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": window, "metadata": metadata}
        return self._ask("POST", "/v1/batches", json.dumps(order).encode(), {"Content-Type": "application/json"})

    def batch(self, batch_id: str) -> Json:
        return self._ask("GET", f"/v1/batches/{_segment(batch_id)}")

    def cancel(self, batch_id: str) -> Json:
        return self._ask("POST", f"/v1/batches/{_segment(batch_id)}/cancel")

    def batches(self, limit: int) -> list[Json]:
        """The latest first."""
        listed: list[Json] = self._ask("GET", f"/v1/batches?limit={limit}")["data"]
        return listed

    def download(self, file_id: str, output: BinaryIO) -> None:
        with _Exchange(self._url) as exchange:
            response = exchange.response("GET", f"/v1/files/{_segment(file_id)}/content", None, self._headers)
            left = int(response.headers["Content-Length"])
            while left > 0:
                piece = exchange.read(_PIECE)
                if not piece:
                    raise Refused("The connection broke in the middle of the file.", is_passing=True)
                left -= len(piece)
                output.write(piece)

    def _ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Json:
        with _Exchange(self._url) as exchange:
            exchange.response(method, path, body, self._headers | (headers or {}))
            answer: Json = json.loads(exchange.read())
            return answer


class _Exchange:
    """One request on a connection of its own, whose every failure is Refused."""

    def __init__(self, url: urllib.parse.SplitResult) -> None:
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.hostname or "", url.port, timeout=_TIMEOUT_S)
        self._address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
        self._base = url.path
        self._response: http.client.HTTPResponse | None = None

    def __enter__(self) -> "_Exchange":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def response(self, method: str, path: str, body: Any, headers: dict[str, str]) -> http.client.HTTPResponse:
        try:
            self._connection.request(method, self._base + path, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has said why, and reads no further
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            self._response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        if self._response.status >= 400:
            raise self._refused(self._response.status, has_key="Authorization" in headers)
        return self._response

    def _refused(self, status: int, *, has_key: bool) -> Refused:
        message = _message(status, self.read())
        if status == 401:
            message += " Is HEADRACE_API_KEY right?" if has_key else " Set HEADRACE_API_KEY."
        return Refused(message, is_passing=status in (429, 503))

    def read(self, size: int | None = None) -> bytes:
        assert self._response is not None
        try:
            return self._response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Refused:
        return Refused(f"No answer from {self._address}: {error}. Is HEADRACE_URL right?", is_passing=True)


def _is_usable(parts: urllib.parse.SplitResult) -> bool:
    try:
        has_port = parts.port != 0
    except ValueError:
        return False
    is_path = parts.path.isprintable() and " " not in parts.path
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port and is_path


def _message(status: int, body: bytes) -> str:
    try:
        return f"{json.loads(body)['error']['message']} (HTTP {status})"
    except (ValueError, KeyError, TypeError):
        return f"The server answered with HTTP {status}."


def _form(head: bytes, file: BinaryIO, tail: bytes) -> Iterator[bytes]:
    yield head
    while piece := file.read(_PIECE):
        yield piece
    yield tail


def _segment(text: str) -> str:
    if not text:
        raise Refused("An id is empty.", is_passing=False)  # the path without it is that of the list
    return urllib.parse.quote(text, safe="")


def _quoted(filename: str) -> str:
    escaped = filename.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(character if character.isprintable() else "_" for character in escaped)
