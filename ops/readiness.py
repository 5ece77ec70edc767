"""Waits for the server to say that it is ready, beside the supervisor's loop, and tells what it waits for."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from typing import Self

POLL_S = 0.25
FIRST_WORD_AFTER_S = 5.0
WORD_EVERY_S = 15.0
ANSWER_TIMEOUT_S = 5.0


def ask(host: str, port: int) -> str | None:
    """None when /readyz answers 200, else what is missing, in a few words."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        body = response.read()
        return None if response.status == 200 else _reason(response.status, body)
    except (OSError, http.client.HTTPException):
        return "the API does not answer yet"
    finally:
        connection.close()


def _reason(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return f"/readyz answers {status}"


class ReadinessWatch:
    """A thread that asks until the answer is yes, and meanwhile `say`s from time to time what is missing."""

    def __init__(self, host: str, port: int, say: Callable[[str], None]) -> None:
        self._host = host
        self._port = port
        self._say = say
        self.was_ready = False
        self._is_told = False
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readiness", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._thread.join()

    def has_become_ready(self) -> bool:
        """True once: the first time it is called after the answer was yes."""
        is_news = self.was_ready and not self._is_told
        self._is_told = self.was_ready
        return is_news

    def _run(self) -> None:
        next_word_at = time.monotonic() + FIRST_WORD_AFTER_S
        while not self._is_closed.wait(POLL_S):
            missing = ask(self._host, self._port)
            if missing is None:
                self.was_ready = True
                return
            if time.monotonic() >= next_word_at:
                self._say(f"waiting: {missing}")
                next_word_at = time.monotonic() + WORD_EVERY_S
