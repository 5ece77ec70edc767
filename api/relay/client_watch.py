"""Notices clients that hang up, whatever their stream is doing: queued, in prefill or between two tokens.

WSGI learns of a closed connection only when it writes. One poll of all sockets a quarter second finds out sooner,
reads nothing from them, and costs one system call for all streams.
"""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable

from gevent.monkey import get_original

from api.relay.subscriber import Notice, Subscription

log = logging.getLogger("headrace.relay")

_POLL_EVERY_S = 0.25
_CLOSED = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


class ClientWatch:
    """Tells a subscription when its client's socket is closed by the peer."""

    def __init__(self) -> None:
        self._by_fd: dict[int, Subscription] = {}
        self._thread: threading.Thread | None = None

    def add(self, client: socket.socket, subscription: Subscription) -> Callable[[], None]:
        """Watch until the returned function is called. Raises OSError when the socket is closed."""
        fd = client.fileno()
        if fd < 0:
            raise OSError("the socket is closed")
        self._by_fd[fd] = subscription
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="client-watch", daemon=True)
            self._thread.start()

        def stop_watching() -> None:
            if self._by_fd.get(fd) is subscription:
                del self._by_fd[fd]

        return stop_watching

    def _run(self) -> None:
        while True:
            time.sleep(_POLL_EVERY_S)
            for fd in closed_by_peer(list(self._by_fd)):
                subscription = self._by_fd.pop(fd, None)
                if subscription is not None:
                    log.info("client gone", extra={"job_id": subscription.job_id})
                    subscription.notify(Notice.CLIENT_GONE)


def closed_by_peer(fds: list[int]) -> list[int]:
    """Those of the sockets whose other end has closed or failed. Never waits and reads nothing."""
    # The system's own poll: gevent's waits on its hub, once per socket.
    poller = get_original("select", "poll")()
    for fd in fds:
        poller.register(fd, select.POLLRDHUP)
    return [fd for fd, events in poller.poll(0) if events & _CLOSED]
