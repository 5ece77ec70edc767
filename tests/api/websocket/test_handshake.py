"""Given a request for /v1/ws, when it is no proper or welcome WebSocket, then an HTTP status says so."""

import json
import socket
from typing import Any

import httpx
import pytest
from websocket import ABNF

from tests.api.websocket.client import Client, completion_body
from tests.processes import wait_until
from tests.stack import LOOPBACK, WebServer

UPGRADE = {
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
Changes = dict[str, str | None]


def handshake(web: WebServer, changes: Changes, path: str = "/v1/ws") -> tuple[int, dict[str, str], Any]:
    """Status, headers and the error of an opening handshake with some headers changed or (None) left out."""
    headers = {"Host": LOOPBACK, **UPGRADE} | changes
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    with socket.create_connection((LOOPBACK, web.port), timeout=30) as client:
        client.sendall("\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode())
        with client.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            received = {}
            while (line := answer.readline().decode().strip()) != "":
                name, _, value = line.partition(": ")
                received[name.lower()] = value
            error = None if status == 101 else json.loads(answer.read(int(received["content-length"])))["error"]
    return status, received, error


def test_the_handshake_is_accepted_without_compression(web: WebServer) -> None:
    status, headers, _ = handshake(web, {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"})
    assert status == 101
    assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert "sec-websocket-extensions" not in headers


def test_a_plain_get_is_told_to_upgrade(web: WebServer) -> None:
    response = httpx.get(f"{web.url}/v1/ws")
    assert (response.status_code, response.headers["upgrade"]) == (426, "websocket")
    assert response.json()["error"]["code"] == "upgrade_required"


def test_a_post_is_not_allowed(web: WebServer) -> None:
    response = httpx.post(f"{web.url}/v1/ws", json={})
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"Sec-WebSocket-Key": None}, 400),
        ({"Sec-WebSocket-Key": "c2hvcnQ="}, 400),
        ({"Sec-WebSocket-Key": "not base64 at all!!"}, 400),
        ({"Sec-WebSocket-Version": "8"}, 426),
        ({"Sec-WebSocket-Version": None}, 426),
        ({"Upgrade": "h2c"}, 426),
        ({"Connection": "keep-alive"}, 426),
    ],
)
def test_a_malformed_handshake_is_refused(web: WebServer, changes: Changes, status: int) -> None:
    got, headers, error = handshake(web, changes)
    assert (got, set(error)) == (status, {"message", "type", "param", "code"})
    if "Sec-WebSocket-Version" in changes:
        assert headers["sec-websocket-version"] == "13"


@pytest.mark.parametrize(
    ("path", "changes", "status", "code"),
    [
        ("/v1/ws", {}, 401, "invalid_api_key"),
        ("/v1/ws?api_key=wrong", {}, 401, "invalid_api_key"),
        ("/v1/ws?api_key=sesame", {"Authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ("/v1/ws?api_key=sesame", {"Origin": "https://evil.example"}, 403, "origin_not_allowed"),
        ("/v1/ws?api_key=sesame", {"Origin": "http://app.example"}, 403, "origin_not_allowed"),
        ("/v1/ws?api_key=sesame", {"Origin": "null"}, 403, "origin_not_allowed"),
        ("/v1/ws?api_key=sesame", {"Host": "evil.example"}, 403, "host_not_allowed"),
        ("/v1/ws?api_key=sesame", {"Host": "127.0.0.1.evil.example:80"}, 403, "host_not_allowed"),
    ],
)
def test_who_is_not_welcome_is_refused_before_the_upgrade(
    strict: WebServer, path: str, changes: Changes, status: int, code: str
) -> None:
    got, _, error = handshake(strict, changes, path)
    assert (got, error["code"]) == (status, code)


@pytest.mark.parametrize(
    "changes",
    [
        {"Origin": "https://app.example"},
        {"Origin": "HTTPS://WWW.example"},
        {"Host": "127.0.0.1:8000"},
        {"Host": "Chat.HEADRACE.example"},
    ],
)
def test_who_is_welcome_is_let_in(strict: WebServer, changes: Changes) -> None:
    wait_until(lambda: handshake(strict, changes, "/v1/ws?api_key=sesame")[0] == 101, "the handshake")


def test_one_socket_more_than_the_process_may_hold_is_closed_with_1013(strict: WebServer) -> None:
    with Client(strict, "?api_key=sesame") as first, Client(strict, "?api_key=sesame") as second:
        with Client(strict, "?api_key=sesame") as third:
            assert third.close_code() == 1013
        for client in (first, second):
            client.request("a", completion_body("Rain", 1))
            assert client.until_last("a")["a"][-1]["type"] == "done"
    wait_until(lambda: has_room(strict), "there is room again")


def has_room(web: WebServer) -> bool:
    with Client(web, "?api_key=sesame") as client:
        client.request("a", completion_body("Rain", 1))
        opcode, _ = client.next_frame()
    return opcode == int(ABNF.OPCODE_TEXT)
