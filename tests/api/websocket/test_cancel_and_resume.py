"""Given running requests, when a client cancels, leaves or returns, then each job ends, or goes on, exactly once."""

import time

import pytest

from tests.api.websocket.client import LONG, Client, chat_body, chunks_of, completion_body, over_http, text_of
from tests.api.websocket.conftest import is_idle
from tests.processes import wait_until
from tests.stack import WebServer
from worker.protocol.queue import JobQueue


def state_of(queue: JobQueue, job_id: str) -> str | None:
    return queue.describe(job_id).get("state")


def test_a_cancelled_request_is_done_as_cancelled_and_its_neighbour_goes_on(web: WebServer, queue: JobQueue) -> None:
    body = completion_body("Once upon a time", 100)
    with Client(web) as client:
        job = client.start("long", completion_body("Twice", LONG))
        client.request("short", body)
        client.say({"type": "cancel", "id": "long"})
        events = client.until_last("long", "short")
    last = events["long"][-1]
    assert last == {"type": "done", "id": "long", "finish_reason": "cancelled", "usage": None}
    assert state_of(queue, job) == "cancelled"
    assert text_of(events["short"]) == over_http(web, "completions", body)["choices"][0]["text"]


def test_a_request_cancelled_at_once_is_done_as_cancelled(web: WebServer) -> None:
    with Client(web) as client:
        client.request("a", chat_body("Hello", LONG))
        client.say({"type": "cancel", "id": "a"})
        last = client.until_last("a")["a"][-1]
    assert (last["type"], last["finish_reason"]) == ("done", "cancelled")


def test_a_second_cancel_of_the_same_request_does_no_harm(web: WebServer) -> None:
    with Client(web) as client:
        client.start("a", completion_body("Once", LONG))
        for _ in range(2):
            client.say({"type": "cancel", "id": "a"})
        events = client.until(lambda event: event["type"] == "done")
        client.request("b", completion_body("Rain", 1))
        events += client.until(lambda event: event["type"] == "done" and event["id"] == "b")
    assert [event["id"] for event in events if event["type"] == "done"] == ["a", "b"]
    # The second may come before the end of the first or after it.
    assert [event["error"]["code"] for event in events if event["type"] == "error"] in ([], ["unknown_id"])


@pytest.mark.parametrize("way", ["close frame", "tcp close"])
def test_a_client_that_leaves_cancels_all_that_it_runs(web: WebServer, queue: JobQueue, way: str) -> None:
    with Client(web) as client:
        jobs = [client.start(name, completion_body(name, LONG)) for name in ("a", "b", "c")]
        if way == "tcp close":
            client.drop()
    wait_until(lambda: is_idle(queue), "the jobs are gone", deadline_s=5)
    assert [state_of(queue, job) for job in jobs] == ["cancelled"] * 3


def test_a_client_that_leaves_before_its_request_is_admitted_leaves_nothing_behind(
    web: WebServer, queue: JobQueue
) -> None:
    for pause_s in (0.0, 0.001, 0.004, 0.016):
        with Client(web) as client:
            client.request("a", chat_body("word " * 1500, LONG))
            time.sleep(pause_s)
            client.drop()
    wait_until(lambda: is_idle(queue), "the jobs are gone", deadline_s=10)


def test_a_stream_resumed_at_another_process_misses_and_doubles_nothing(
    web: WebServer, strict: WebServer, queue: JobQueue
) -> None:
    body = chat_body("Where does the river rise?", 200)
    with Client(web) as first:
        first.request("a", body, resume_grace_s=20)
        before = first.until(lambda event: event["type"] == "chunk" and event["seq"] == 20)
        first.drop()
    job = before[0]["job"]
    with Client(strict, header=["Authorization: Bearer sesame"]) as second:
        second.say({"type": "resume", "id": "again", "job": job, "after": 20})
        after = second.until_last("again")["again"]
    assert after[0] == {"type": "accepted", "id": "again", "job": job}
    chunks = chunks_of(before) + chunks_of(after)
    assert [event["seq"] for event in chunks] == list(range(1, len(chunks) + 1))
    expected = over_http(web, "chat/completions", body)
    assert text_of(chunks) == expected["choices"][0]["message"]["content"]
    assert (after[-1]["finish_reason"], after[-1]["usage"]) == ("length", expected["usage"])
    assert state_of(queue, job) == "succeeded"


def test_a_job_that_ended_while_nobody_followed_it_can_still_be_read(web: WebServer, queue: JobQueue) -> None:
    body = completion_body("Snow fell", 80)
    with Client(web) as first:
        job = first.start("a", body, resume_grace_s=20)
    wait_until(lambda: state_of(queue, job) == "succeeded", "the job ends alone")
    with Client(web) as second:
        second.say({"type": "resume", "id": "a", "job": job})
        events = second.until_last("a")["a"]
        second.say({"type": "resume", "id": "b", "job": job, "after": len(chunks_of(events))})
        rest = second.until_last("b")["b"]
    assert text_of(events) == over_http(web, "completions", body)["choices"][0]["text"]
    assert [event["type"] for event in rest] == ["accepted", "done"]


def test_a_detached_job_that_nobody_resumes_is_cancelled_after_its_grace(web: WebServer, queue: JobQueue) -> None:
    with Client(web) as client:
        job = client.start("a", completion_body("Once", LONG), resume_grace_s=0.5)
    wait_until(lambda: state_of(queue, job) == "cancelled", "the grace ends", deadline_s=20)


def test_a_resumed_job_can_be_cancelled_and_whoever_resumes_it_later_is_told_so(web: WebServer) -> None:
    with Client(web) as first:
        job = first.start("a", completion_body("Once", LONG), resume_grace_s=20)
        first.drop()
    with Client(web) as second:
        second.say({"type": "resume", "id": "x", "job": job, "after": 1})
        second.until(lambda event: event["type"] == "chunk")
        second.say({"type": "cancel", "id": "x"})
        assert second.until(lambda event: event["type"] == "done")[-1]["finish_reason"] == "cancelled"
        second.say({"type": "resume", "id": "y", "job": job, "after": 10_000})
        assert second.until_last("y")["y"][-1]["finish_reason"] == "cancelled"


def test_another_tenants_job_looks_like_no_job(web: WebServer, strict: WebServer) -> None:
    with Client(web) as owner, Client(strict, "?api_key=other") as stranger:
        job = owner.start("a", completion_body("Once", LONG), resume_grace_s=20)
        stranger.say({"type": "resume", "id": "a", "job": job})
        unknown = job[:-4] + ("0000" if job[-4:] != "0000" else "1111")
        stranger.say({"type": "resume", "id": "b", "job": unknown})
        answers = stranger.until_last("a", "b")
        owner.say({"type": "cancel", "id": "a"})
        owner.until(lambda event: event["type"] == "done")
    assert answers["a"][0]["error"] == answers["b"][0]["error"]
    assert answers["a"][0]["error"]["code"] == "not_found"


def test_a_request_that_runs_out_of_its_time_ends_with_an_error(web: WebServer) -> None:
    with Client(web) as client:
        client.request("a", completion_body("Once", LONG, timeout=0.3))
        last = client.until_last("a")["a"][-1]
    assert (last["type"], last["error"]["type"], last["error"]["code"]) == ("error", "timeout_error", "timeout")
