"""Given frames good and bad, when they arrive, then the socket answers or closes as RFC 6455 says."""

import random
import struct

import pytest
from websocket import ABNF

from tests.api.websocket.client import LONG, Client, chat_body, completion_body
from tests.api.websocket.conftest import is_idle
from tests.processes import wait_until
from tests.stack import WebServer
from worker.protocol.queue import JobQueue

STRICT_KEY = "?api_key=sesame"
MASK = b"\x01\x02\x03\x04"


def masked(payload: bytes) -> bytes:
    return bytes(byte ^ MASK[i % 4] for i, byte in enumerate(payload))


def frame(first_byte: int, payload: bytes) -> bytes:
    """A masked frame of up to 125 bytes, with any first byte."""
    return bytes([first_byte, 0x80 | len(payload)]) + MASK + masked(payload)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(0x82, b"binary"), 1003),
        (frame(0x82, b""), 1003),
        (frame(0x83, b"reserved opcode"), 1002),
        (frame(0x8B, b"reserved control"), 1002),
        (frame(0xC1, b"rsv1, as if compressed"), 1002),
        (frame(0x80, b"a continuation of nothing"), 1002),
        (frame(0x01, b"begun") + frame(0x81, b"and begun again"), 1002),
        (frame(0x09, b"a fragmented ping"), 1002),
        (b"\x81\x05hello", 1002),  # not masked
        (b"\x89\xfe\x00\x7e" + MASK + masked(b"p" * 126), 1002),  # a ping of 126 bytes
        (b"\x81\xff" + struct.pack("!Q", 1 << 63) + MASK, 1002),
        (b"\x81\xfe\x00\x05" + MASK + masked(b"hello"), 1002),  # a length longer than need be
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1002),
        (frame(0x81, b"\xff\xfe"), 1007),
        (frame(0x81, b"\xed\xa0\x80"), 1007),  # a surrogate
        (frame(0x81, b"cut \xf0\x9f"), 1007),
        (frame(0x01, b"\xf0\x9f") + frame(0x80, b"\x90"), 1007),  # cut at the end of the last fragment
        (frame(0x88, b"\x03"), 1002),
        (frame(0x88, struct.pack("!H", 1005)), 1002),
        (frame(0x88, struct.pack("!H", 999)), 1002),
        (frame(0x88, struct.pack("!H", 1000) + b"\xff"), 1007),
    ],
)
def test_broken_frames_close_the_socket_with_a_code_and_end_its_jobs(
    web: WebServer, queue: JobQueue, sent: bytes, code: int
) -> None:
    with Client(web) as client:
        client.start("a", completion_body("Once", LONG))
        client.send_bytes(sent)
        assert client.close_code() == code
        wait_until(lambda: is_idle(queue), "the job is gone", deadline_s=5)


@pytest.mark.parametrize(
    ("payload", "echoed"), [(struct.pack("!H", 1000), 1000), (struct.pack("!H", 4321) + b"bye", 4321), (b"", None)]
)
def test_a_close_is_answered_with_the_same_code_and_nothing_follows(
    web: WebServer, payload: bytes, echoed: int | None
) -> None:
    with Client(web) as client:
        client.start("a", completion_body("Once", LONG))
        client.send_frame(ABNF.OPCODE_CLOSE, payload)
        client.send_frame(ABNF.OPCODE_PING, b"too late")
        assert client.close_code() == echoed


@pytest.mark.parametrize("size", [20_001, 5_000_000])
def test_a_message_that_is_too_large_is_answered_with_1009(strict: WebServer, size: int) -> None:
    with Client(strict, STRICT_KEY) as client:
        client.socket.send("x" * size)
        assert client.close_code() == 1009


def test_fragments_are_no_way_around_the_limit(strict: WebServer) -> None:
    with Client(strict, STRICT_KEY) as client:
        client.send_frame(1, b"{", fin=0)
        for _ in range(30):
            client.send_frame(0, b" " * 1000, fin=0)
        assert client.close_code() == 1009


def test_the_limit_counts_bytes_and_not_characters(strict: WebServer) -> None:
    with Client(strict, STRICT_KEY) as client:
        client.say("🐦" * 5000)
        assert client.next()["error"]["type"] == "invalid_request_error"
        client.say("🐦" * 5000 + "x")
        assert client.close_code() == 1009


def test_empty_fragments_without_end_are_no_way_around_the_limit(strict: WebServer) -> None:
    with Client(strict, STRICT_KEY) as client:
        client.send_frame(1, b"", fin=0)
        client.send_bytes(frame(0x00, b"") * 20_001)
        assert client.close_code() == 1009


def test_pings_are_answered_while_requests_run(web: WebServer) -> None:
    with Client(web) as client:
        client.start("a", completion_body("Once", LONG))
        client.request("b", chat_body("word " * 3000, LONG))
        client.send_frame(ABNF.OPCODE_PING, b"are you there?")
        frames = [client.next_frame()]
        while frames[-1][0] != ABNF.OPCODE_PONG:
            frames.append(client.next_frame())
        assert frames[-1][1] == b"are you there?"
        assert len(frames) < 200


def test_a_quiet_client_is_pinged_and_lives_as_long_as_it_answers(strict: WebServer) -> None:
    with Client(strict, STRICT_KEY) as client:
        for _ in range(3):
            assert client.next_frame() == (ABNF.OPCODE_PING, b"")
            client.send_frame(ABNF.OPCODE_PONG, b"")
        client.request("a", completion_body("Rain", 1))
        assert client.until_last("a")["a"][-1]["type"] == "done"


def test_a_client_that_answers_no_ping_is_given_up_and_its_jobs_end(strict: WebServer, queue: JobQueue) -> None:
    with Client(strict, STRICT_KEY) as client:
        client.start("a", completion_body("Once", LONG))
        assert client.close_code() == 1011
        wait_until(lambda: is_idle(queue), "the job is gone", deadline_s=5)


def test_a_client_that_reads_nothing_is_cut_off(strict: WebServer) -> None:
    with Client(strict, STRICT_KEY) as client, pytest.raises((ConnectionResetError, BrokenPipeError)):
        send_for_ever(client, frame(0x81, b"nonsense") * 5000)


def send_for_ever(client: Client, data: bytes) -> None:
    while True:
        client.send_bytes(data)


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_do_no_harm(web: WebServer, seed: int) -> None:
    noise = random.Random(seed)
    with Client(web) as client:
        for _ in range(5):
            payload = noise.randbytes(noise.randrange(126))
            client.send_bytes(frame(0x81, payload) if noise.random() < 0.5 else noise.randbytes(50))
        client.drop()
    with Client(web) as client:
        client.request("a", completion_body("Rain", 1))
        assert client.until_last("a")["a"][-1]["type"] == "done"


def test_a_client_that_floods_and_never_reads_costs_nobody_else_anything(web: WebServer) -> None:
    with Client(web) as flood:
        flood.socket.sock.settimeout(1.0)
        flooded = frame(0x81, b"nonsense") * 5000
        try:
            for _ in range(200):
                flood.send_bytes(flooded)
        except TimeoutError:
            pass  # pushed back: the server reads no faster than it can answer
        else:
            pytest.fail("the server took 14 MB of messages whose answers nobody reads")
        with Client(web) as other:
            other.request("a", completion_body("Rain", 2))
            assert other.until_last("a")["a"][-1]["type"] == "done"
