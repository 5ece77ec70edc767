"""What the headers of answers tell: how long it took, what is left of the limits, whether to try again."""

import pytest

from tests.api.http.client import CHAT, COMPLETIONS, chat_body, completion_body, get, post
from tests.api.http.conftest import Servers
from tests.api.http.raw import RawConnection, request
from tests.stack import WebServer

LIMITS = [f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")]
PATHS = ["/v1/models", "/v1/models/reciter", "/livez", "/readyz", "/health", "/metrics"]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_answer_tells_what_its_tenant_may_still_ask_for(server: WebServer, path: str, is_stream: bool) -> None:
    body = chat_body(num_tokens=2) if path == CHAT else completion_body([7, 8, 9], 2)
    headers = post(server, path, body | {"stream": is_stream}).headers
    assert [headers[name] for name in LIMITS[:2]] == ["512", "2000000"]
    assert (int(headers[LIMITS[2]]) <= 511, int(headers[LIMITS[3]]) <= 2_000_000 - 5) == (True, True)
    assert all(headers[name].endswith("s") for name in LIMITS[4:])


def test_every_answer_tells_its_time_and_version(server: WebServer) -> None:
    for response in (get(server, "/v1/models"), get(server, "/nowhere"), post(server, COMPLETIONS, b"{")):
        assert int(response.headers["openai-processing-ms"]) >= 0
        assert response.headers["openai-version"] == "2020-10-01"
        assert "x-request-id" in response.headers


def test_browsers_may_read_all_of_them(server: WebServer) -> None:
    exposed = get(server, "/livez").headers["Access-Control-Expose-Headers"].split(", ")
    expected = {"x-request-id", "retry-after", "x-should-retry", "openai-processing-ms", "openai-version", *LIMITS}
    assert expected < set(exposed)


def test_what_cannot_go_better_need_not_be_tried_again(servers: Servers) -> None:
    body = chat_body(num_tokens=4000, model="tiny", timeout=0.2)
    late = post(servers.tiny, CHAT, body)
    assert (late.status_code, late.headers["x-should-retry"]) == (504, "false")
    key = {"Idempotency-Key": "headers-1"}
    assert post(servers.server, COMPLETIONS, completion_body("x", 1), **key).status_code == 200
    other = post(servers.server, COMPLETIONS, completion_body("y", 1), **key)
    assert (other.status_code, other.headers["x-should-retry"]) == (409, "false")


@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_a_body(server: WebServer, path: str) -> None:
    with RawConnection(server) as connection:
        response, body = connection.send(request("HEAD", path)).response("HEAD")
        assert (response.status, body) == (200, b"")
        assert connection.send(request("GET", "/livez")).response()[0].status == 200


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (CHAT, "OPTIONS, POST"),
        (COMPLETIONS, "OPTIONS, POST"),
        ("/tokenize", "OPTIONS, POST"),
        ("/detokenize", "OPTIONS, POST"),
        (CHAT + "/input_tokens", "OPTIONS, POST"),
        ("/v1/models", "GET, HEAD, OPTIONS"),
        ("/livez", "GET, HEAD, OPTIONS"),
    ],
)
def test_options_tells_what_is_allowed_without_a_key(strict: WebServer, path: str, allowed: str) -> None:
    with RawConnection(strict) as connection:
        response, body = connection.send(request("OPTIONS", path)).response()
    assert (response.status, body, response.headers["Allow"]) == (204, b"", allowed)
