"""Bodies as they really arrive: over a socket, through gunicorn's gevent worker."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.api.pipeline.body_app import MAX_BYTES

DEADLINE_S = 30.0
ROOT = Path(__file__).parents[3]
POST = b"POST /size HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    command = [sys.executable, "-m", "gunicorn", "--worker-class", "gevent", "--no-control-socket"]
    command += ["--log-level", "warning", "--keep-alive", "20", "--bind", f"fd://{listener.fileno()}"]
    server = subprocess.Popen(
        [*command, "tests.api.pipeline.body_app:application"], cwd=ROOT, pass_fds=[listener.fileno()]
    )
    try:
        yield listener.getsockname()[1]
    finally:
        server.terminate()
        server.wait(DEADLINE_S)
        listener.close()


@pytest.fixture
def connection(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        yield connection


def answer(connection: socket.socket) -> tuple[int, Any]:
    response = HTTPResponse(connection)
    response.begin()
    body = response.read()
    assert response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(body)


def status_and_code(connection: socket.socket) -> tuple[int, str | None]:
    status, body = answer(connection)
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return status, body["error"]["code"]


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("size", [0, 1, 70_000, MAX_BYTES])
def test_a_body_of_declared_length_is_read(connection: socket.socket, size: int) -> None:
    connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
    assert answer(connection) == (200, {"size": size})


def test_a_chunked_body_is_read_and_the_connection_serves_the_next_request(connection: socket.socket) -> None:
    for size in (1, 40_000):
        connection.sendall(CHUNKED + chunk(b"{") + chunk(b"x" * size) + chunk(b"}") + b"0\r\n\r\n")
        assert answer(connection) == (200, {"size": size + 2})


def test_a_client_that_waits_for_100_continue_gets_it_first(connection: socket.socket) -> None:
    connection.sendall(POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(b"12345")
    assert answer(connection) == (200, {"size": 5})


@pytest.mark.parametrize(
    "request_bytes",
    [
        POST + b'Content-Length: 50\r\n\r\n{"model": "m"}',
        CHUNKED + chunk(b'{"model": "m"}'),
        CHUNKED + b'20\r\n{"model": "m"}',
        CHUNKED + chunk(b'{"model": "m"}') + b"0\r\n",
        CHUNKED,
    ],
)
def test_a_body_that_breaks_off_is_never_taken_for_whole(connection: socket.socket, request_bytes: bytes) -> None:
    connection.sendall(request_bytes)
    connection.shutdown(socket.SHUT_WR)
    assert status_and_code(connection) == (400, None)
    assert is_closed(connection)


@pytest.mark.parametrize("broken", [b"zz\r\nabc\r\n", b"3\r\nabcdef\r\n", b"-3\r\nabc\r\n"])
def test_malformed_chunks_are_refused_and_the_connection_closed(connection: socket.socket, broken: bytes) -> None:
    connection.sendall(CHUNKED + broken)
    assert status_and_code(connection) == (400, None)
    assert is_closed(connection)


def test_a_body_over_the_limit_gets_its_answer_even_from_a_client_that_sends_it_all(connection: socket.socket) -> None:
    size = 10 * MAX_BYTES
    connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
    assert status_and_code(connection) == (413, "payload_too_large")
    assert is_closed(connection)


def test_a_chunked_body_over_the_limit_is_refused(connection: socket.socket) -> None:
    connection.sendall(CHUNKED + chunk(b"x" * 60_000) * 2 + b"0\r\n\r\n")
    assert status_and_code(connection) == (413, "payload_too_large")
    assert is_closed(connection)


@pytest.mark.parametrize("headers", [POST + b"Content-Length: 500\r\n\r\nabc", CHUNKED + chunk(b"abc")])
def test_a_body_that_does_not_arrive_in_time_is_given_up(connection: socket.socket, headers: bytes) -> None:
    connection.sendall(headers)
    assert status_and_code(connection) == (408, "request_timeout")
    assert is_closed(connection)


def test_a_body_nobody_read_does_not_become_the_next_request(connection: socket.socket) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    head = POST.replace(b"/size", b"/unread")
    connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(smuggled) + smuggled)
    assert answer(connection) == (200, {"body": "left where it was"})
    connection.sendall(POST + b"Content-Length: 3\r\n\r\nabc")
    assert answer(connection) == (200, {"size": 3})


def test_a_wrong_method_and_an_unknown_path_answer_in_json(connection: socket.socket) -> None:
    connection.sendall(b"GET /size HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status_and_code(connection) == (405, "method_not_allowed")
    connection.sendall(b"GET /no/such/place HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status_and_code(connection) == (404, "unknown_url")
