"""One error envelope for everything that goes wrong."""

import json
import logging
from typing import Any

import msgspec
import pytest
from flask import Flask, abort
from flask.testing import FlaskClient

from api import errors
from api.errors import ApiError, install_error_handlers


@pytest.fixture
def client() -> FlaskClient:
    app = Flask(__name__)
    install_error_handlers(app)

    @app.get("/things/")
    def things() -> str:
        return "things"

    @app.get("/crash")
    def crash() -> str:
        return str(1 // 0)

    @app.get("/refuse/<int:status>")
    def refuse(status: int) -> str:
        abort(status)

    @app.get("/queue")
    def queue() -> str:
        raise errors.queue_full(2.1)

    return app.test_client()


def envelope(response: Any) -> dict[str, Any]:
    assert response.content_type == "application/json"
    body = json.loads(response.data)
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize(
    ("error", "status", "type_", "param", "code"),
    [
        (errors.bad_request("m", "stop"), 400, "invalid_request_error", "stop", None),
        (errors.unsupported_parameter("n", "1"), 400, "invalid_request_error", "n", "unsupported_parameter"),
        (
            errors.context_length_exceeded(10, 12, "messages"),
            400,
            "invalid_request_error",
            "messages",
            "context_length_exceeded",
        ),
        (errors.unauthorized("m"), 401, "invalid_request_error", None, "invalid_api_key"),
        (errors.not_found_model("x"), 404, "invalid_request_error", "model", "model_not_found"),
        (errors.not_found("m"), 404, "invalid_request_error", None, "not_found"),
        (errors.method_not_allowed("PUT", "GET"), 405, "invalid_request_error", None, "method_not_allowed"),
        (errors.request_timeout(3), 408, "invalid_request_error", None, "request_timeout"),
        (errors.payload_too_large(5), 413, "invalid_request_error", None, "payload_too_large"),
        (errors.unsupported_media_type("m"), 415, "invalid_request_error", None, "unsupported_media_type"),
        (errors.rate_limited("m", 1), 429, "rate_limit_error", None, "rate_limit_exceeded"),
        (errors.queue_full(1), 429, "rate_limit_error", None, "queue_full"),
        (errors.internal(), 500, "server_error", None, "internal_error"),
        (errors.unavailable("m", 1), 503, "server_error", None, "unavailable"),
        (errors.timeout(1), 504, "timeout_error", None, "timeout"),
    ],
)
def test_each_error_has_its_words(
    error: ApiError, status: int, type_: str, param: str | None, code: str | None
) -> None:
    assert error.status == status
    assert error.body() == {"error": {"message": error.message, "type": type_, "param": param, "code": code}}


@pytest.mark.parametrize(("seconds", "header"), [(0, "1"), (0.2, "1"), (1.0, "1"), (1.01, "2"), (120, "120")])
def test_retry_after_is_a_whole_number_of_seconds_of_at_least_one(seconds: float, header: str) -> None:
    for error in (errors.queue_full(seconds), errors.rate_limited("m", seconds), errors.unavailable("m", seconds)):
        assert error.headers == {"Retry-After": header}


def test_what_a_repeat_cannot_cure_says_so() -> None:
    assert errors.timeout(1).headers == {"x-should-retry": "false"}


def test_the_context_error_says_what_clients_search_for() -> None:
    assert errors.context_length_exceeded(8192, 9000, "messages").message == (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens, and at "
        "least one token must remain for the answer. Please reduce the length of the messages."
    )


@pytest.mark.parametrize("text", ["lone \ud800 surrogate", "\udc80", 'quotes " and \\ and \n and \x00', "油\U0001f6e2"])
def test_the_body_is_always_json(text: str) -> None:
    body = msgspec.json.encode(errors.bad_request(text, text).body())
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


def test_an_unknown_path_is_404_in_json(client: FlaskClient) -> None:
    response = client.post("/v1/nonsense")
    error = envelope(response)
    assert (response.status_code, error["code"]) == (404, "unknown_url")
    assert error["message"] == "Invalid URL (POST /v1/nonsense)"


@pytest.mark.parametrize("path", ["/%ff%fe", "/%00", "/" + "x" * 5000, "/%F0%9F%9B%A2", "/..%2f..%2fetc"])
def test_odd_paths_are_404_in_json(client: FlaskClient, path: str) -> None:
    response = client.get(path)
    assert (response.status_code, envelope(response)["code"]) == (404, "unknown_url")


def test_a_wrong_method_is_405_and_names_the_right_ones(client: FlaskClient) -> None:
    response = client.delete("/crash")
    assert (response.status_code, envelope(response)["code"]) == (405, "method_not_allowed")
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}


def test_a_missing_slash_redirects(client: FlaskClient) -> None:
    assert client.get("/things").status_code == 308


@pytest.mark.parametrize("status", [400, 403, 409, 413, 415, 418, 422, 429, 500, 501, 503])
def test_any_http_error_is_in_json(client: FlaskClient, status: int) -> None:
    response = client.get(f"/refuse/{status}")
    assert response.status_code == status
    assert envelope(response)["type"] == ("server_error" if status >= 500 else "invalid_request_error")


def test_a_crash_is_a_500_that_tells_nothing_and_is_logged(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        response = client.get("/crash")
    error = envelope(response)
    assert (response.status_code, error["type"], error["code"]) == (500, "server_error", "internal_error")
    assert "division" not in response.text
    assert "ZeroDivisionError" in caplog.text
    assert "GET /crash" in caplog.text


def test_headers_of_an_error_are_sent(client: FlaskClient) -> None:
    response = client.get("/queue")
    assert (response.status_code, response.headers["Retry-After"]) == (429, "3")
    assert envelope(response)["code"] == "queue_full"
