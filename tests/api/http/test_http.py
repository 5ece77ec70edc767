"""Given HTTP as real clients, proxies and attackers speak it, every answer is well-formed and in JSON."""

import json
import re

import pytest
from openai.types import Model

from tests.api.http.client import COMPLETIONS, completion_body, error_of, get, post
from tests.api.http.raw import HOST, RawConnection, request
from tests.api.http.reciter import CONTEXT, RECITER
from tests.api.http.schemas import assert_valid
from tests.stack import WebServer

ORIGIN = "https://app.example"
BODY = json.dumps(completion_body("x y", 2)).encode()
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
def test_head_on_health_is_200_without_a_body(server: WebServer, path: str) -> None:
    with RawConnection(server) as connection:
        response, body = connection.send(request("HEAD", path)).response("HEAD")
        assert (response.status, body) == (200, b"")
        assert connection.send(request("GET", "/livez")).response()[1] == b'{"status":"alive"}\n'


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/no/such/place", "/readyz"])
def test_preflights_are_answered_without_a_key(strict: WebServer, path: str) -> None:
    headers = {"Origin": ORIGIN, "Access-Control-Request-Headers": "authorization, x-stainless-os"}
    with RawConnection(strict) as connection:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        response, body = connection.send(request("OPTIONS", path, b"", *lines)).response()
    assert (response.status, body) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert response.headers["Access-Control-Allow-Headers"] == "authorization, x-stainless-os"
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    assert response.headers["Vary"] == "Origin"


def test_errors_carry_the_cors_headers_too(strict: WebServer, server: WebServer) -> None:
    for response in (get(strict, "/v1/models", Origin=ORIGIN), post(strict, COMPLETIONS, b"{", Origin=ORIGIN)):
        assert response.status_code == 401
        assert response.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "x-request-id" in response.headers["Access-Control-Expose-Headers"]
    for response in (get(server, "/nowhere"), post(server, COMPLETIONS, b"{"), post(server, "/v1/models", b"{}")):
        assert response.status_code in (400, 404, 405)
        assert response.headers["Access-Control-Allow-Origin"] == "*"


def test_another_origin_gets_no_cors_headers(strict: WebServer) -> None:
    response = get(strict, "/livez", Origin="https://evil.example")
    assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize("path", ["/v1/completions/", "/v1//completions", "//v1/completions", "///v1///completions//"])
def test_slashes_too_many_do_not_change_a_post(server: WebServer, path: str) -> None:
    with RawConnection(server) as connection:
        response, body = connection.send(request("POST", path, BODY)).response()
    assert (response.status, json.loads(body)["object"]) == (200, "text_completion")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/nothing", "/v1/engines/x/completions", "/v1/%00%ff%0d%0a"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_404_in_json(server: WebServer, path: str, method: str) -> None:
    with RawConnection(server) as connection:
        status, error = connection.send(request(method, path)).error()
    assert (status, error["code"]) == (404, "unknown_url")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", {"OPTIONS", "POST"}),
        ("PUT", "/v1/completions", {"OPTIONS", "POST"}),
        ("POST", "/v1/models", {"GET", "HEAD", "OPTIONS"}),
        ("BREW", "/livez", {"GET", "HEAD", "OPTIONS"}),
    ],
)
def test_a_wrong_method_is_405_in_json_and_says_what_is_allowed(
    server: WebServer, method: str, path: str, allowed: set[str]
) -> None:
    with RawConnection(server) as connection:
        response, body = connection.send(request(method, path)).response()
    assert (response.status, json.loads(body)["error"]["code"]) == (405, "method_not_allowed")
    assert set(re.split(", ?", response.headers["Allow"])) == allowed


def test_models_are_listed_and_found_by_each_of_their_names(server: WebServer) -> None:
    listed = get(server, "/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [RECITER, "gpt-4o", "org/model"]
    for model in listed["data"]:
        assert_valid(Model, model)
        assert (model["object"], model["owned_by"]) == ("model", "headrace")
        assert (model["max_model_len"], model["root"]) == (CONTEXT, RECITER)
        for path in (model["id"], model["id"] + "/", model["id"].replace("/", "%2F")):
            assert get(server, f"/v1/models/{path}").json() == model
    for name in ("gpt-7", "org/models", "org", "%00"):
        response = get(server, f"/v1/models/{name}")
        assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # a TLS greeting
        (b"GET /livez HTTP/9.9\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"Bad Header: x\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"no colon\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"X-A: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /livez HTTP/1.1\r\n" + HOST + b"".join(b"X-%d: 1\r\n" % i for i in range(200)) + b"\r\n", 431),
        (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Length: two\r\n\r\n{}", 400),
        (CHUNKED.replace(b"chunked", b"chunked\r\nContent-Length: 5") + b"0\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Expect: a miracle\r\nContent-Length: 2\r\n\r\n{}", 417),
    ],
)
def test_what_is_not_http_is_refused_in_json_and_the_connection_closed(
    server: WebServer, data: bytes, status: int
) -> None:
    with RawConnection(server) as connection:
        answer, error = connection.send(data).error()
        assert (answer, error["type"], error["code"]) == (status, "invalid_request_error", "bad_http")
        assert connection.is_closed()


def test_an_endless_header_does_not_lose_its_answer(server: WebServer) -> None:
    with RawConnection(server) as connection:
        connection.send(b"GET /livez HTTP/1.1\r\n" + HOST + b"X-A: " + b"y" * 2_000_000)
        assert connection.error()[0] == 431


def test_a_chunked_body_is_read_and_the_connection_goes_on(server: WebServer) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:8], BODY[8:]))
    with RawConnection(server) as connection:
        for _ in range(2):
            response, body = connection.send(CHUNKED + chunks + b"0\r\n\r\n").response()
            assert (response.status, json.loads(body)["usage"]["prompt_tokens"]) == (200, 2)


@pytest.mark.parametrize("broken", [b"zz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}}}\r\n0\r\n\r\n", b"-2\r\n{}\r\n"])
def test_broken_chunks_are_refused_in_json(server: WebServer, broken: bytes) -> None:
    with RawConnection(server) as connection:
        status, error = connection.send(CHUNKED + broken).error()
        assert (status, error["type"]) == (400, "invalid_request_error")
        assert connection.is_closed()


def test_broken_chunks_that_nobody_read_get_no_second_answer(server: WebServer) -> None:
    with RawConnection(server) as connection:
        connection.send(CHUNKED.replace(b"completions", b"nowhere") + b"zz\r\n{}\r\n0\r\n\r\n")
        assert connection.error()[0] == 404
        assert connection.is_closed()


def test_a_client_that_waits_for_100_continue_gets_it_first(server: WebServer) -> None:
    with RawConnection(server) as connection:
        head, _, _ = request("POST", COMPLETIONS, BODY, "Expect: 100-continue").partition(BODY)
        connection.send(head)
        assert connection.socket.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert connection.send(BODY).response()[0].status == 200


@pytest.mark.parametrize("path", ["/v1/models", "/nowhere", "/livez"])
def test_an_unread_body_does_not_become_the_next_request(server: WebServer, path: str) -> None:
    smuggled = request("GET", "/v1/models/smuggled")
    with RawConnection(server) as connection:
        response, _ = connection.send(request("POST", path, smuggled)).response()
        assert response.status in (404, 405)
        assert connection.send(request("GET", "/livez")).response()[1] == b'{"status":"alive"}\n'


def test_a_body_over_the_limit_is_413_in_json(strict: WebServer) -> None:
    huge = completion_body("x" * 30_000)
    chunked = CHUNKED.replace(b"Host: x", b"Host: x\r\nAuthorization: Bearer sesame") + b"7530\r\n" + b"x" * 30_000
    assert error_of(post(strict, COMPLETIONS, huge, Authorization="Bearer sesame"))["code"] == "payload_too_large"
    with RawConnection(strict) as connection:
        status, error = connection.send(chunked + b"\r\n0\r\n\r\n").error()
        assert (status, error["code"]) == (413, "payload_too_large")
        assert connection.is_closed()


def test_a_body_that_does_not_arrive_is_given_up(strict: WebServer) -> None:
    with RawConnection(strict) as connection:
        connection.send(request("POST", COMPLETIONS, BODY, "Authorization: Bearer sesame")[:-5])
        status, error = connection.error()
        assert (status, error["code"]) == (408, "request_timeout")
        assert connection.is_closed()


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_a_type_or_encoding_that_is_not_json_is_415(server: WebServer, headers: dict[str, str]) -> None:
    response = post(server, COMPLETIONS, completion_body("x"), **headers)
    assert (response.status_code, error_of(response)["code"]) == (415, "unsupported_media_type")


def test_request_ids_are_given_kept_and_never_injected(server: WebServer) -> None:
    given = {get(server, "/livez").headers["x-request-id"] for _ in range(2)}
    assert len(given) == 2
    assert get(server, "/nowhere", **{"X-Request-Id": "my-id-7"}).headers["x-request-id"] == "my-id-7"
    assert get(server, "/livez", **{"X-Request-Id": "x" * 129}).headers["x-request-id"] != "x" * 129


def test_every_answer_names_its_job(server: WebServer) -> None:
    for more in ({}, {"stream": True}):
        response = post(server, COMPLETIONS, completion_body("x", 1, **more))
        assert re.fullmatch(r"cmpl-reciter-[0-9a-f]{32}", response.headers["x-headrace-job"])
        assert response.headers["x-headrace-job"] in response.text


def test_old_http_gets_its_stream_too(server: WebServer) -> None:
    streamed = json.dumps(completion_body("x", 2, stream=True)).encode()
    with RawConnection(server) as connection:
        connection.send(request("POST", COMPLETIONS, streamed).replace(b"HTTP/1.1", b"HTTP/1.0"))
        response, body = connection.response()
    assert response.status == 200
    assert body.endswith(b"data: [DONE]\n\n")
