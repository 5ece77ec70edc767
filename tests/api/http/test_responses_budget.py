"""Given little memory for stored responses, new ones are served and the oldest are forgotten."""

from collections.abc import Callable

from tests.api.http.client import error_of, get, post
from tests.api.http.responses_client import RESPONSES, body, created
from tests.stack import WebServer

LARGE = "x" * 150_000  # three and a half of these are what a tenant may have
NewWeb = Callable[..., WebServer]


def test_the_oldest_responses_make_room_and_one_that_is_too_large_is_refused(new_web: NewWeb) -> None:
    web = new_web(HEADRACE_RESPONSE_STORE_MB="1", HEADRACE_API_KEYS="k=small")
    key = {"Authorization": "Bearer k"}
    said = [{"role": "user", "content": LARGE}, {"role": "user", "content": "Hi"}]
    large = body(said, truncation="auto")
    ids = [created(web, large, **key)["id"] for _ in range(4)]
    assert [get(web, f"{RESPONSES}/{each}", **key).status_code for each in ids] == [404, 200, 200, 200]
    refused = post(web, RESPONSES, body([*said[:1] * 4, *said], truncation="auto"), **key)
    error = error_of(refused)
    assert (refused.status_code, error["param"], error["code"]) == (400, "store", "response_too_large")
    assert created(web, body([*said[:1] * 4, *said], truncation="auto", store=False), **key)["status"] == "incomplete"
