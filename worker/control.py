"""The control mailbox: operators ask all workers, or one by name, to say how they are or to drain.

kombu's pidbox carries it, apart from the queue: a lost control message costs a repetition, never a job.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

from kombu import Connection
from kombu.pidbox import Mailbox, Node

log = logging.getLogger("headrace.control")

_POLL_S = 0.5
_RETRY_S = 1.0
_TRANSPORT = {"global_keyprefix": "headrace:control:"}

Handlers = dict[str, Callable[[], Any]]


def mailbox_of(pool: str) -> Mailbox:
    return Mailbox(f"headrace-{pool}", type="fanout", accept=["json"], serializer="json")


def connect_control(url: str) -> Connection:
    return Connection(url, transport_options=_TRANSPORT)


class Control:
    """Listens on a thread of its own and answers with what the handlers return. Handlers only read or set flags."""

    def __init__(self, url: str, pool: str, name: str, handlers: Handlers) -> None:
        self._url = url
        self._pool = pool
        self._name = name
        self._handlers = handlers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:
                # Whatever the transport raises while the broker is away: the mailbox must come back with it.
                log.warning("the control mailbox was cut off", extra={"error": repr(error)})
                self._stopped.wait(_RETRY_S)

    def _listen(self) -> None:
        with connect_control(self._url) as connection, connection.channel() as channel:
            node: Node = mailbox_of(self._pool).Node(self._name, channel=channel)
            for method, handler in self._handlers.items():
                node.handlers[method] = _ignoring_arguments(handler)
            with node.listen(channel=channel):
                while not self._stopped.is_set():
                    with contextlib.suppress(TimeoutError):
                        connection.drain_events(timeout=_POLL_S)


def _ignoring_arguments(handler: Callable[[], Any]) -> Callable[..., Any]:
    def handle(_state: Any, **_arguments: Any) -> Any:
        return handler()

    return handle


def ask(url: str, pool: str, method: str, names: list[str] | None = None, timeout_s: float = 2.0) -> dict[str, Any]:
    """What each worker of the pool (or each of `names`) answers within `timeout_s`, by worker."""
    with connect_control(url) as connection:
        mailbox = mailbox_of(pool)(connection)
        if names:
            replies = mailbox.call(names, method, {}, timeout=timeout_s)
        else:
            replies = mailbox.multi_call(method, {}, timeout=timeout_s)
    return {name: answer for reply in replies or [] for name, answer in reply.items()}
