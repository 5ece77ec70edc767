"""Keys, tenants, idempotency and time limits."""

from typing import Any

import pytest

from tests.api.http.client import CHAT, COMPLETIONS, answered, chat_body, completion_body, error_of, get, post, streamed
from tests.api.http.conftest import Servers
from tests.processes import wait_until
from tests.stack import WebServer
from tests.streams import StreamReader

ALICE = {"Authorization": "Bearer sesame"}
BOB = {"Authorization": "Bearer open"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer SESAME"},
        {"Authorization": "Bearer sesame=alice"},
        {"Authorization": "Basic sesame"},
        {"Authorization": "sesame"},
        {"X-Api-Key": "wrong"},
    ],
)
def test_without_an_accepted_key_everything_of_v1_is_401(strict: WebServer, headers: dict[str, str]) -> None:
    answers = [
        post(strict, CHAT, chat_body(), **headers),
        post(strict, COMPLETIONS, completion_body("x", stream=True), **headers),
        get(strict, "/v1/models", **headers),
        get(strict, f"{CHAT}/chatcmpl-reciter-{'0' * 32}/stream", **headers),
    ]
    for response in answers:
        assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "sesame" not in response.text


@pytest.mark.parametrize("authorization", ["Bearer sesame", "bearer sesame", "Bearer  sesame", "BEARER open"])
def test_an_accepted_key_is_served(strict: WebServer, authorization: str) -> None:
    assert get(strict, "/v1/models", Authorization=authorization).status_code == 200


def test_health_needs_no_key(strict: WebServer) -> None:
    assert [get(strict, path).status_code for path in ("/livez", "/readyz", "/metrics")] == [200] * 3


def test_a_stream_is_resumed_by_its_own_tenant_alone(strict: WebServer) -> None:
    job_id = streamed(strict, CHAT, chat_body(), **ALICE, **{"Headrace-Resume": "1"}).job_id
    path = f"{CHAT}/{job_id}/stream"
    assert get(strict, path, **ALICE).status_code == 200
    response = get(strict, path, **BOB)
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")
    unknown = get(strict, f"{CHAT}/{job_id[:-1]}{'0' if job_id[-1] != '0' else '1'}/stream", **ALICE)
    assert unknown.json() == response.json()
    of_another_endpoint = get(strict, f"{COMPLETIONS}/{job_id}/stream", **ALICE)
    assert of_another_endpoint.json() == response.json()


@pytest.mark.parametrize("job_id", ["x", "chatcmpl-reciter-123", f"chatcmpl-other-{'0' * 32}", "%00", "é"])
def test_what_is_no_id_of_a_stream_is_404(server: WebServer, job_id: str) -> None:
    response = get(server, f"{CHAT}/{job_id}/stream")
    assert (response.status_code, error_of(response)["code"]) == (404, "not_found")


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 20, "١"])
def test_a_place_to_resume_at_that_is_no_number_is_refused(server: WebServer, after: str) -> None:
    job_id = streamed(server, CHAT, chat_body(num_tokens=1), **{"Headrace-Resume": "true"}).job_id
    response = get(server, f"{CHAT}/{job_id}/stream?after={after}")
    assert (response.status_code, error_of(response)["param"]) == (400, "after")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_the_same_idempotency_key_gives_the_same_job(strict: WebServer, path: str) -> None:
    body = (chat_body if path == CHAT else completion_body)("once", temperature=1)
    headers = {**ALICE, "Idempotency-Key": f"key of {path}"}
    first, second = answered(strict, path, body, **headers), answered(strict, path, body, **headers)
    assert first == second
    stream = streamed(strict, path, body, **headers)
    assert (stream.job_id, stream.chunks[0]["created"]) == (first["id"], first["created"])
    assert answered(strict, path, body, **BOB, **{"Idempotency-Key": f"key of {path}"})["id"] != first["id"]
    assert answered(strict, path, body, **ALICE)["id"] != first["id"]


def test_the_same_key_for_another_request_is_refused(strict: WebServer) -> None:
    headers = {**ALICE, "Idempotency-Key": "seven"}
    answered(strict, COMPLETIONS, completion_body("x"), **headers)
    others: list[dict[str, Any]] = [
        completion_body("y"),
        completion_body(["x", "x"]),
        completion_body("x", 5),
        completion_body("x", stop="z"),
        completion_body("x", seed=0),
        completion_body("x", service_tier="flex"),
    ]
    for body in others:
        response = post(strict, COMPLETIONS, body, **headers)
        assert (response.status_code, error_of(response)["code"]) == (409, "idempotency_key_reused")
        assert response.headers["x-should-retry"] == "false"
    assert post(strict, CHAT, chat_body("x"), **headers).status_code == 409


def test_a_repeat_after_a_broken_connection_gets_the_answer_that_was_begun(tiny: WebServer) -> None:
    body = chat_body(num_tokens=200, model="tiny", temperature=1, ignore_eos=True)
    reader = StreamReader(tiny.url, CHAT, body, **{"Idempotency-Key": "again"}).wait_for_chunks(5)
    reader.hang_up()
    repeat = streamed(tiny, CHAT, body, **{"Idempotency-Key": "again"})
    assert repeat.job_id == reader.job_id
    assert repeat.text().startswith(reader.text)
    assert repeat.finish() == "length"


def test_a_key_that_is_too_long_is_refused(server: WebServer) -> None:
    assert post(server, COMPLETIONS, completion_body("x"), **{"Idempotency-Key": "k" * 257}).status_code == 400


def test_a_whole_answer_that_takes_too_long_is_504_and_leaves_nothing(servers: Servers, tiny: WebServer) -> None:
    response = post(tiny, CHAT, chat_body(num_tokens=4000, model="tiny", timeout=0.2))
    error = error_of(response)
    assert (response.status_code, error["type"], error["code"]) == (504, "timeout_error", "timeout")
    assert response.headers["x-should-retry"] == "false"
    wait_until(lambda: servers.stack.worker_pages(servers.tiny_worker)["held"] == 0, "the pages are free")


def test_a_stream_that_takes_too_long_ends_with_an_error_and_its_job_expires(servers: Servers, tiny: WebServer) -> None:
    stream = streamed(tiny, CHAT, chat_body(num_tokens=4000, model="tiny", timeout=0.5))
    assert stream.error is not None
    assert stream.error["code"] == "timeout"
    assert servers.queues["tiny"].describe(stream.job_id)["state"] == "expired"
    wait_until(lambda: servers.stack.worker_pages(servers.tiny_worker)["held"] == 0, "the pages are free")


def test_a_timeout_beyond_the_servers_own_is_cut_to_it(server: WebServer) -> None:
    assert post(server, COMPLETIONS, completion_body("x", 1, timeout=1e300)).status_code == 200
