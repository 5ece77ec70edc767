"""Given the WebSocket mode of /v1/responses, turns run one after the other, or in lanes, and go on from each other."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websocket
from openai import OpenAI
from openai.types.responses import ResponsesServerEvent

from tests.api.http.client import Json
from tests.api.http.conftest import Servers, is_idle
from tests.api.http.reciter import RECITER, Recital
from tests.api.http.responses_client import ENDED, QUESTION, RESPONSES, body, created, recited, retrieved, text_of
from tests.api.http.schemas import assert_valid
from tests.processes import GENEROUS_S, wait_until
from tests.stack import WebServer


class Connection:
    """One WebSocket, below any SDK. Everything that it receives is held against the SDK's types."""

    def __init__(self, server: WebServer) -> None:
        url = f"ws://127.0.0.1:{server.port}{RESPONSES}"
        self.socket: Any = websocket.create_connection(url, timeout=GENEROUS_S, suppress_origin=True)

    def create(self, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": "response.create", **fields}))

    def next(self) -> Json:
        event: Json = json.loads(self.socket.recv())
        assert_valid(ResponsesServerEvent, event)
        return event

    def turn(self, **fields: Any) -> Json:
        """The Response that a turn ends with, or its error."""
        self.create(**fields)
        while True:
            event = self.next()
            if event["type"] == "error":
                return event
            if event["type"].removeprefix("response.") in ENDED:
                response: Json = event["response"]
                return response

    def close_code(self) -> int:
        """Once the server has closed."""
        opcode, data = self.socket.recv_data(control_frame=True)
        while opcode != websocket.ABNF.OPCODE_CLOSE:
            opcode, data = self.socket.recv_data(control_frame=True)
        return int.from_bytes(data[:2], "big")


@pytest.fixture
def connect(server: WebServer) -> Iterator[Callable[..., Connection]]:
    made: list[Connection] = []

    def make(to: WebServer = server) -> Connection:
        made.append(Connection(to))
        return made[-1]

    yield make
    for connection in made:
        connection.socket.close(timeout=1)
        connection.socket.shutdown()


Connect = Callable[..., Connection]


def test_the_sdks_own_connection_helper(server: WebServer, recital: Recital) -> None:
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none")
    with client.responses.connect() as connection:
        connection.response.create(model=RECITER, input=QUESTION, max_output_tokens=9, temperature=0, store=False)
        texts: list[str] = []
        for event in connection:
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
            if event.type == "response.incomplete":
                break
        assert event.type == "response.incomplete"
        assert event.response.usage is not None
        assert "".join(texts) == recital.text(event.response.usage.input_tokens, 9)
        connection.response.create(
            model=RECITER, input="And then?", previous_response_id=event.response.id, max_output_tokens=3, temperature=0
        )
        second = next(event for event in connection if event.type == "response.incomplete")
        assert second.response.output_text == recited(recital, second.response.to_dict())


def test_the_events_are_those_of_the_stream(connect: Connect, server: WebServer) -> None:
    connection = connect()
    connection.create(**body())
    events = [connection.next()]
    while events[-1]["type"] != "response.incomplete":
        events.append(connection.next())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert retrieved(server, events[0]["response"]["id"]) == events[-1]["response"]


def test_turns_that_are_not_stored_go_on_from_each_other_on_their_connection_alone(
    connect: Connect, server: WebServer
) -> None:
    connection = connect()
    first = connection.turn(**body(store=False))
    second = connection.turn(**body("And then?", store=False, previous_response_id=first["id"]))
    stored = connection.turn(**body("And where?", previous_response_id=second["id"]))
    said = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": text_of(first)},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": text_of(second)},
        {"role": "user", "content": "And where?"},
    ]
    assert stored["usage"]["input_tokens"] == created(server, body(said))["usage"]["input_tokens"]

    refused = connect().turn(**body(previous_response_id=first["id"]))
    assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")
    assert refused["error"]["param"] == "previous_response_id"
    # What is stored has the turns before, which nobody else keeps, with it.
    after = created(server, body("And when?", previous_response_id=stored["id"]))
    said += [{"role": "assistant", "content": text_of(stored)}, {"role": "user", "content": "And when?"}]
    assert after["usage"]["input_tokens"] == created(server, body(said))["usage"]["input_tokens"]


def test_turns_sent_at_once_run_one_after_the_other(connect: Connect) -> None:
    connection = connect()
    for _ in range(3):
        connection.create(**body())
    events = [connection.next()]
    while sum(event["type"] == "response.incomplete" for event in events) < 3:
        events.append(connection.next())
    ids = [event["response"]["id"] for event in events if "response" in event]
    assert ids == sorted(ids, key=ids.index)
    assert len(set(ids)) == 3


def test_lanes_run_beside_each_other(connect: Connect, tiny: WebServer, server: WebServer) -> None:
    del server
    connection = connect(tiny)
    long = {**body(num_tokens=3000), "model": "tiny", "ignore_eos": True}
    connection.create(**long, stream_id="slow")
    assert connection.next()["stream_id"] == "slow"
    connection.create(**{**long, "max_output_tokens": 2}, stream_id="fast")
    fast: list[Json] = []
    while not fast or fast[-1]["type"] != "response.incomplete":
        event = connection.next()
        if event["stream_id"] == "fast":
            fast.append(event)
        else:
            assert event["type"] != "response.incomplete"
    assert fast[-1]["response"]["usage"]["output_tokens"] == 2


def test_closing_the_socket_cancels_what_runs(connect: Connect, tiny: WebServer, servers: Servers) -> None:
    connection = connect(tiny)
    connection.create(**{**body(num_tokens=3000), "model": "tiny", "ignore_eos": True})
    response_id = connection.next()["response"]["id"]
    connection.socket.close()
    wait_until(lambda: is_idle(servers.queues["tiny"]), "nothing runs")
    wait_until(lambda: retrieved(tiny, response_id)["status"] == "cancelled", "it is kept as cancelled")


def test_a_warm_up_says_nothing_and_can_be_gone_on_from(connect: Connect, server: WebServer) -> None:
    connection = connect()
    warm = connection.turn(**body("Be kind.", generate=False))
    assert (warm["status"], warm["output"]) == ("completed", [])
    response = connection.turn(**body("hi", previous_response_id=warm["id"]))
    said = [{"role": "user", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    assert response["usage"]["input_tokens"] == created(server, body(said))["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("{", None),
        ("[]", None),
        ("{}", "type"),
        ('{"type":"response.steer"}', "type"),
        ('{"type":"response.create","stream_id":""}', "stream_id"),
        ('{"type":"response.create"}', "model"),
        (json.dumps({"type": "response.create", **body(), "background": True}), "background"),
        (json.dumps({"type": "response.create", **body(), "stream": False}), "stream"),
        (json.dumps({"type": "response.create", **body(), "temperature": 9}), "temperature"),
        (json.dumps({"type": "response.create", **body(), "model": "other"}), "model"),
    ],
)
def test_what_is_wrong_is_an_error_and_the_socket_lives(connect: Connect, message: str, param: str | None) -> None:
    connection = connect()
    connection.socket.send(message)
    event = connection.next()
    assert (event["type"], event["status"], event["error"]["param"]) == (
        "error",
        404 if '"other"' in message else 400,
        param,
    )
    assert connection.turn(**body(), stream_id="a")["status"] == "incomplete"


def test_messages_that_wait_are_bounded_in_bytes(
    connect: Connect, new_web: Callable[..., WebServer], tiny_model_folder: Path
) -> None:
    connection = connect(new_web(HEADRACE_WS_MAX_MESSAGE_BYTES="10000", HEADRACE_MODEL=str(tiny_model_folder)))
    long = {**body(num_tokens=2000), "model": "tiny", "ignore_eos": True}
    connection.create(**long)
    assert connection.next()["type"] == "response.created"
    for _ in range(3):
        connection.create(**{**long, "num_tokens": 1}, filler="x" * 8000)
    while (event := connection.next())["type"] != "error":
        pass
    assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
    assert "bytes" in event["error"]["message"]


def test_errors_name_their_lane(connect: Connect) -> None:
    assert connect().turn(**body(temperature=9), stream_id="a")["stream_id"] == "a"


def test_a_connection_ends_at_its_age_when_its_turn_has_ended(
    connect: Connect, new_web: Callable[..., WebServer], tiny_model_folder: Path
) -> None:
    connection = connect(new_web(HEADRACE_WS_MAX_AGE_S="1", HEADRACE_MODEL=str(tiny_model_folder)))
    response = connection.turn(**{**body(num_tokens=400), "model": "tiny", "ignore_eos": True})
    assert response["usage"]["output_tokens"] == 400
    event = connection.next()
    assert (event["status"], event["error"]["code"]) == (400, "websocket_connection_limit_reached")
    assert connection.close_code() == 1001


def test_a_server_that_shuts_down_says_so(connect: Connect, new_web: Callable[..., WebServer]) -> None:
    web = new_web()
    connection = connect(web)
    assert connection.turn(**body())["status"] == "incomplete"
    web.process.send(signal.SIGTERM)
    assert connection.close_code() == 1012


def test_a_plain_get_is_not_for_responses(server: WebServer) -> None:
    answer = httpx.get(server.url + RESPONSES)
    assert (answer.status_code, set(answer.headers["Allow"].split(", "))) == (405, {"POST", "OPTIONS"})
