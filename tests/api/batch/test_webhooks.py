"""A webhook is signed as OpenAI's are, and sent until it is taken."""

import base64
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import openai
import pytest

from api.batch import webhooks
from api.batch.settings import BatchSettings, check_webhooks
from api.batch.webhooks import WebhookSender
from tests.api.batch.conftest import Workbench, jsonl, line
from tests.processes import GENEROUS_S, wait_until
from worker.protocol import keys
from worker.protocol.configuration import BadSetting

SECRET = "whsec_" + base64.b64encode(b"a secret of some length").decode()


class Receiver(HTTPServer):
    """Answers with the statuses it is given, then with 200, and keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.received: list[tuple[bytes, dict[str, str]]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((body, {name.lower(): value for name, value in self.headers.items()}))
        self.server.may_answer.wait()
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        if status == 307:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def bench_telling(new_bench: Callable[..., Workbench], receiver: Receiver) -> tuple[Workbench, WebhookSender]:
    settings = BatchSettings(webhook_url=receiver.url, webhook_secret=SECRET)
    bench = new_bench(settings)
    return bench, WebhookSender(bench.desk.store, settings)


def test_given_a_completed_batch_then_openais_client_accepts_what_is_told(
    new_bench: Callable[..., Workbench], receiver: Receiver
) -> None:
    bench, sender = bench_telling(new_bench, receiver)
    batch = bench.finish(bench.order(jsonl([line("a")])))

    (due,) = bench.desk.store.due_webhooks(batch.stamps["completed_at"])
    assert sender.send(due)

    ((body, headers),) = receiver.received
    event = openai.OpenAI(api_key="x").webhooks.unwrap(body, headers, secret=SECRET)
    assert event.type == "batch.completed"
    assert event.data.id == batch.id
    assert event.created_at == batch.stamps["completed_at"]
    assert bench.desk.store.due_webhooks(2**40) == []
    assert not sender.send(due), "it is told once"


@pytest.mark.parametrize(("status", "data"), [("failed", b""), ("cancelled", jsonl([line("a")]))])
def test_every_end_has_an_event_of_its_own(
    new_bench: Callable[..., Workbench], receiver: Receiver, status: str, data: bytes
) -> None:
    bench, sender = bench_telling(new_bench, receiver)
    batch_id = bench.order(data)
    if status == "cancelled":
        bench.desk.store.stop(batch_id, status)
    bench.finish(batch_id)

    sender.send(batch_id)

    ((body, headers),) = receiver.received
    assert openai.OpenAI(api_key="x").webhooks.unwrap(body, headers, secret=SECRET).type == f"batch.{status}"


def test_given_a_receiver_that_fails_then_the_same_event_is_sent_again_later_and_later(
    new_bench: Callable[..., Workbench], receiver: Receiver
) -> None:
    bench, sender = bench_telling(new_bench, receiver)
    receiver.statuses = [500, 307, 404]
    batch_id = bench.finish(bench.order(jsonl([line("a")]))).id
    webhooks, pauses = keys.prefix(bench.model.name) + "webhooks", []
    for _ in range(3):
        assert not sender.send(batch_id)
        assert not sender.send(batch_id), "it is not due yet"
        now_s = bench.load(batch_id).now_ms / 1000
        pauses.append(round(float(bench.client.zscore(webhooks, batch_id) or 0) - now_s, -1))
        bench.client.zadd(webhooks, {batch_id: 1})

    assert sender.send(batch_id)

    assert len(receiver.received) == 4
    assert len({headers["webhook-id"] for _, headers in receiver.received}) == 1
    assert pauses == sorted(pauses)
    assert pauses[-1] == 20


def test_given_a_receiver_that_is_not_done_then_no_other_thread_waits_for_it(
    new_bench: Callable[..., Workbench], receiver: Receiver
) -> None:
    bench, sender = bench_telling(new_bench, receiver)
    first, second = (bench.finish(bench.order(jsonl([line("a")]))).id for _ in range(2))
    receiver.may_answer.clear()
    slow = threading.Thread(target=sender.send, args=(first,))
    slow.start()
    wait_until(lambda: len(receiver.received) == 1, "the first is sent")

    assert not sender.send(second)
    assert second in bench.desk.store.due_webhooks(time.time()), "it was not tried"

    receiver.may_answer.set()
    slow.join()
    assert sender.send(second)


def test_given_a_receiver_that_sends_a_byte_now_and_then_then_it_is_cut_off(
    new_bench: Callable[..., Workbench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = BatchSettings(webhook_url=f"http://127.0.0.1:{listener.getsockname()[1]}/", webhook_secret=SECRET)
        bench = new_bench(settings)
        batch_id = bench.finish(bench.order(jsonl([line("a")]))).id
        dripper = threading.Thread(target=drip, args=(listener,))
        dripper.start()

        assert not WebhookSender(bench.desk.store, settings).send(batch_id)

        dripper.join(GENEROUS_S)
        assert not dripper.is_alive()


def drip(listener: socket.socket) -> None:
    """Answers a byte at a time, without an end, until the client is gone."""
    client, _ = listener.accept()
    with client, contextlib.suppress(OSError):
        client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            client.sendall(b"x")
            time.sleep(0.05)


def test_given_nobody_to_tell_then_nothing_is_kept(bench: Workbench) -> None:
    bench.finish(bench.order(jsonl([line("a")])))

    assert bench.desk.store.due_webhooks(2**40) == []


@pytest.mark.parametrize(
    "settings",
    [
        BatchSettings(webhook_url="http://x"),
        BatchSettings(webhook_url="ftp://x", webhook_secret="s"),
        BatchSettings(webhook_url="http://x", webhook_secret="whsec_!!"),
        BatchSettings(webhook_url="http://x", webhook_secret="whsec_"),
        BatchSettings(webhook_url="http://x", webhook_secret="whsec_é"),
    ],
)
def test_given_a_url_without_a_secret_or_of_another_kind_then_it_is_refused(settings: BatchSettings) -> None:
    with pytest.raises(BadSetting, match="HEADRACE_WEBHOOK_"):
        check_webhooks(settings)
