"""Given a server that is told to stop, when it has WebSockets, then each is closed with 1012 and loses nothing."""

import signal

from tests.api.websocket.client import LONG, Client, chunks_of, completion_body, over_http, text_of
from tests.stack import Stack, WebServer


def test_a_draining_server_sends_its_websockets_away_with_1012(stack: Stack, web: WebServer) -> None:
    body = completion_body("Once upon", 300)
    old = stack.start_web(HEADRACE_WEB_GRACE_S="60")
    old.wait_ready()
    with Client(old) as idle, Client(old) as resumable, Client(old) as running:
        job = resumable.start("a", body, resume_grace_s=20)
        running.start("a", completion_body("The mill", LONG))
        old.process.send(signal.SIGTERM)
        assert idle.close_code() == 1012
        assert resumable.close_code() == 1012
        running.request("late", completion_body("Rain", 1))
        refusal = running.until(lambda event: event["type"] == "error")[-1]
        assert (refusal["id"], refusal["error"]["code"]) == ("late", "unavailable")
        running.until(lambda event: event["type"] == "chunk")
        running.say({"type": "cancel", "id": "a"})
        running.until(lambda event: event["type"] == "done")
        assert running.close_code() == 1012
    assert old.process.wait() == 0
    with Client(web) as elsewhere:
        elsewhere.say({"type": "resume", "id": "a", "job": job})
        resumed = elsewhere.until_last("a")["a"]
    assert [event["seq"] for event in chunks_of(resumed)] == list(range(1, len(chunks_of(resumed)) + 1))
    assert text_of(resumed) == over_http(web, "completions", body)["choices"][0]["text"]


def test_a_client_that_does_not_answer_cannot_hold_up_the_end(stack: Stack) -> None:
    old = stack.start_web(HEADRACE_WEB_GRACE_S="5")
    old.wait_ready()
    with Client(old) as silent:
        silent.start("a", completion_body("Once", LONG))
        old.process.send(signal.SIGTERM)
        assert old.process.wait() == 0
        assert silent.close_code() == 1012
