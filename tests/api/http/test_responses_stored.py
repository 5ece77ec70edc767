"""Given responses that are kept, any API process shows, streams, cancels and deletes them, for their tenant only."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from openai.types.responses import ResponseItemList

from api.auth import DEFAULT_TENANT
from api.responses.known import MAX_RESPONSES
from api.responses.store import ResponseStore, StoredResponse
from api.stream_view import StreamView
from tests.api.http.client import Json, error_of, get, post
from tests.api.http.conftest import Servers
from tests.api.http.reciter import RECITER, Recital
from tests.api.http.responses_client import (
    QUESTION,
    RESPONSES,
    body,
    created,
    ended,
    events_of,
    recited,
    retrieved,
    streamed,
    text_of,
)
from tests.api.http.schemas import assert_valid
from tests.stack import WebServer
from worker.protocol import keys

ALICE, BOB = {"Authorization": "Bearer sesame"}, {"Authorization": "Bearer open"}


@pytest.fixture
def delete() -> Iterator[Any]:
    with httpx.Client(timeout=60) as client:
        yield lambda server, response_id: client.delete(f"{server.url}{RESPONSES}/{response_id}")


def again(server: WebServer, response_id: str, query: str) -> list[Json]:
    return events_of(get(server, f"{RESPONSES}/{response_id}?stream=true{query}").text)


def cancelled(server: WebServer, response_id: str) -> httpx.Response:
    return post(server, f"{RESPONSES}/{response_id}/cancel", b"")


def items_of(server: WebServer, response_id: str, query: str = "") -> Json:
    listed: Json = get(server, f"{RESPONSES}/{response_id}/input_items{query}").json()
    assert_valid(ResponseItemList, listed)
    return listed


def test_a_response_is_shown_again_as_it_was_answered(server: WebServer, strict: WebServer) -> None:
    response = created(server, body(num_tokens=9))
    assert retrieved(server, response["id"]) == response
    other_tenant = get(strict, f"{RESPONSES}/{response['id']}", **ALICE)
    assert other_tenant.status_code == 404


def test_another_tenant_finds_nothing(strict: WebServer) -> None:
    response = created(strict, body(), **ALICE)
    assert retrieved(strict, response["id"], **ALICE) == response
    for path in ("", "/input_items"):
        assert get(strict, f"{RESPONSES}/{response['id']}{path}", **BOB).status_code == 404
    assert post(strict, f"{RESPONSES}/{response['id']}/cancel", b"", **BOB).status_code == 404
    refused = post(strict, RESPONSES, body(previous_response_id=response["id"]), **BOB)
    assert error_of(refused)["code"] == "previous_response_not_found"
    assert get(strict, f"{RESPONSES}/{response['id']}").status_code == 401


def test_a_background_response_is_made_while_nobody_waits(server: WebServer, recital: Recital) -> None:
    queued = created(server, body(num_tokens=30, background=True))
    assert (queued["status"], queued["output"], queued["background"]) == ("queued", [], True)
    response = ended(server, queued["id"])
    assert (response["status"], text_of(response)) == ("incomplete", recited(recital, response))
    assert response["usage"]["output_tokens"] == 30


def test_a_background_stream_goes_on_at_another_server_after_any_event(
    server: WebServer, new_web: Callable[..., WebServer]
) -> None:
    other = new_web()
    events = streamed(server, body(num_tokens=20, background=True))
    response_id = events[0]["response"]["id"]
    assert [event["type"] for event in events[:3]] == ["response.created", "response.queued", "response.in_progress"]
    for after in (0, 3, 11, len(events) - 2):
        assert again(other, response_id, f"&starting_after={after}") == events[after + 1 :]
    assert again(other, response_id, "") == again(other, response_id, "&starting_after=") == events
    assert retrieved(other, response_id) == events[-1]["response"]


def test_a_background_stream_outlives_its_client(tiny: WebServer) -> None:
    request = {**body(num_tokens=300, stream=True, background=True), "model": "tiny", "ignore_eos": True}
    with httpx.stream("POST", tiny.url + RESPONSES, json=request, timeout=60) as stream:
        lines = [line for line, _ in zip(stream.iter_lines(), range(20), strict=False)]
    response_id = events_of("\n".join(lines[:2]) + "\n\n")[0]["response"]["id"]
    events = again(tiny, response_id, "")
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["usage"]["output_tokens"] == 300


def test_a_background_response_can_be_cancelled_and_its_stream_says_so(tiny: WebServer) -> None:
    queued = created(tiny, {**body(num_tokens=3000, background=True), "model": "tiny", "ignore_eos": True})
    response = cancelled(tiny, queued["id"]).json()
    assert (response["status"], response["usage"]) == ("cancelled", None)
    assert cancelled(tiny, queued["id"]).json() == response == retrieved(tiny, queued["id"])
    last = again(tiny, queued["id"], "")[-1]
    assert (last["type"], last["response"]) == ("response.incomplete", response)


def test_only_background_responses_can_be_cancelled(server: WebServer) -> None:
    response = created(server, body())
    refused = cancelled(server, response["id"])
    assert refused.status_code == 400
    assert "background" in error_of(refused)["message"]


def test_a_background_response_that_fails_says_why(server: WebServer) -> None:
    queued = created(server, body(num_tokens=300, background=True, timeout=0.001))
    response = ended(server, queued["id"])
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert again(server, queued["id"], "")[-1]["type"] == "response.failed"


def test_what_is_deleted_is_gone(server: WebServer, delete: Any) -> None:
    first = created(server, body())
    second = created(server, body(previous_response_id=first["id"]))
    deleted = delete(server, first["id"])
    assert deleted.json() == {"id": first["id"], "object": "response", "deleted": True}
    assert get(server, f"{RESPONSES}/{first['id']}").status_code == 404
    assert delete(server, first["id"]).status_code == 404
    assert retrieved(server, second["id"]) == second
    refused = post(server, RESPONSES, body(previous_response_id=second["id"]))
    assert error_of(refused)["code"] == "previous_response_not_found"


def test_a_running_response_that_is_deleted_ends(tiny: WebServer, servers: Servers, delete: Any) -> None:
    queued = created(tiny, {**body(num_tokens=3000, background=True), "model": "tiny", "ignore_eos": True})
    assert delete(tiny, queued["id"]).status_code == 200
    assert get(tiny, f"{RESPONSES}/{queued['id']}").status_code == 404
    prefix = keys.prefix("tiny")
    assert servers.stack.redis().exists(f"{prefix}job:{queued['id']}", f"{prefix}out:{queued['id']}") == 0


def test_input_items_are_the_whole_conversation_the_latest_first(server: WebServer) -> None:
    first = created(server, body())
    said = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "And then?"}]
    second = created(server, body(said, previous_response_id=first["id"]))
    listed = items_of(server, second["id"])
    texts = [item["content"][0]["text"] for item in listed["data"]]
    assert texts == ["And then?", "Be kind.", text_of(first), QUESTION]
    assert [item["role"] for item in listed["data"]] == ["user", "system", "assistant", "user"]
    assert (listed["has_more"], listed["first_id"]) == (False, listed["data"][0]["id"])

    ids = [item["id"] for item in listed["data"]]
    page = items_of(server, second["id"], "?order=asc&limit=2")
    assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[:1:-1], True)
    page = items_of(server, second["id"], f"?order=asc&limit=3&after={page['last_id']}")
    assert ([item["id"] for item in page["data"]], page["has_more"]) == (ids[1::-1], False)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=none"])
def test_a_bad_page_is_refused_by_its_parameter(server: WebServer, query: str) -> None:
    response = created(server, body())
    refused = get(server, f"{RESPONSES}/{response['id']}/input_items?{query}")
    assert (refused.status_code, error_of(refused)["param"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize("query", ["starting_after=1", "stream=maybe", "stream=true&starting_after=x"])
def test_a_bad_query_is_refused_by_its_parameter(server: WebServer, query: str) -> None:
    response = created(server, body())
    refused = get(server, f"{RESPONSES}/{response['id']}?{query}")
    assert (refused.status_code, error_of(refused)["param"]) == (400, query.rpartition("&")[2].partition("=")[0])


def test_responses_and_their_ancestors_are_kept_for_their_time(servers: Servers) -> None:
    first = created(servers.server, body())
    redis = servers.stack.redis()
    key = f"{keys.prefix(RECITER)}response:{first['id']}"
    redis.pexpire(key, 60_000)
    created(servers.server, body(previous_response_id=first["id"]))
    assert 86_000 < redis.ttl(key) <= 86_400 + 600
    redis.delete(key)
    assert get(servers.server, f"{RESPONSES}/{first['id']}").status_code == 404


def test_a_conversation_of_too_many_responses_is_refused_by_name(servers: Servers) -> None:
    store = ResponseStore(servers.stack.redis(), RECITER, 60.0, 1 << 27)
    view = StreamView("responses", RECITER, 0)
    store.save("resp_long", StoredResponse(DEFAULT_TENANT, view, (), ("resp_none",) * MAX_RESPONSES), 0)
    refused = post(servers.server, RESPONSES, body(previous_response_id="resp_long"))
    error = error_of(refused)
    assert (refused.status_code, error["param"]) == (400, "previous_response_id")
    assert error["code"] == "conversation_too_long"


def test_an_answer_is_read_from_what_is_kept_when_its_job_is_gone(servers: Servers) -> None:
    response = created(servers.server, body())
    prefix = keys.prefix(RECITER)
    servers.stack.redis().delete(f"{prefix}job:{response['id']}", f"{prefix}out:{response['id']}")
    assert retrieved(servers.server, response["id"]) == response
    refused = get(servers.server, f"{RESPONSES}/{response['id']}?stream=true")
    assert (refused.status_code, error_of(refused)["param"]) == (400, "stream")
