"""Webhooks as OpenAI sends them: small events, signed by the rules of Standard Webhooks, sent until they are taken."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import logging
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from api.batch.records import derived_digits
from api.batch.settings import BatchSettings, webhook_key
from api.batch.store import BatchStore

log = logging.getLogger("headrace.batch")

FIRST_PAUSE_S = 5
LONGEST_PAUSE_S = 3600
MAX_TRIES = 60  # over two days
TIMEOUT_S = 10.0


def event_of(batch_id: str, status: str) -> bytes:
    """What is told of a batch's end, but for the time."""
    event_id = "evt_" + derived_digits(batch_id, "event", status)
    return msgspec.json.encode({"id": event_id, "object": "event", "type": f"batch.{status}", "data": {"id": batch_id}})


def signed_headers(secret: str, event_id: str, body: bytes, now_s: int) -> dict[str, str]:
    signed = b".".join((event_id.encode(), str(now_s).encode(), body))
    digest = hmac.new(webhook_key(secret), signed, hashlib.sha256).digest()
    return {
        "Content-Type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


class WebhookSender:
    def __init__(self, store: BatchStore, settings: BatchSettings) -> None:
        self._store = store
        self._settings = settings
        self._url = urlsplit(settings.webhook_url)
        self._turn = threading.Lock()

    def send(self, batch_id: str) -> bool:
        """Tell of the batch's end if that is due; whether it was taken. Otherwise it is due again later.

        One at a time: a receiver that is slow, or never done with its answer, holds up one thread and no batch.
        """
        if not self._turn.acquire(blocking=False):
            return False
        try:
            return self._send(batch_id)
        finally:
            self._turn.release()

    def _send(self, batch_id: str) -> bool:
        claimed = self._store.claim_webhook(batch_id, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        if claimed is None:
            return False
        event, created_at, num_tries = claimed
        problem = self._post(event, created_at)
        extra = {"batch_id": batch_id, "num_tries": num_tries, "problem": problem}
        if problem and num_tries < MAX_TRIES:
            log.warning("a webhook was not taken", extra=extra)
            return False
        if problem:
            log.error("a webhook is given up", extra=extra)
        self._store.drop_webhook(batch_id)
        return not problem

    def _post(self, event: bytes, created_at: int) -> str:
        """What went wrong; empty when the receiver has it."""
        told = msgspec.json.decode(event) | {"created_at": created_at}
        body = msgspec.json.encode(told)
        headers = signed_headers(self._settings.webhook_secret, told["id"], body, int(time.time()))
        return self._posted(body, headers)

    def _posted(self, body: bytes, headers: dict[str, str]) -> str:
        """Redirects are not followed: a signed event is for the address that was set and no other."""
        url = self._url
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        try:
            connection = kind(url.hostname or "", url.port, timeout=TIMEOUT_S)
            with contextlib.closing(connection), _cut_off_after(TIMEOUT_S, connection):
                connection.request("POST", path, body, headers)
                status = connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError) as error:
            return repr(error)
        return "" if status // 100 == 2 else f"HTTP {status}"


@contextlib.contextmanager
def _cut_off_after(seconds: float, connection: http.client.HTTPConnection) -> Iterator[None]:
    """The connection's own timeout is for each read alone; a receiver may send a byte now and then for ever.

    Raises TimeoutError at the end when the time was over: what was read by then may look like an answer.
    """
    is_over = threading.Event()

    def cut_off() -> None:
        is_over.set()
        with contextlib.suppress(OSError, AttributeError):  # it may not be open yet, or not any more
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut_off)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if is_over.is_set():
        raise TimeoutError(f"no whole answer within {seconds:g} s")
