"""One request on a WebSocket: on a thread of its own, from its message to its one last event."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable

import redis

from api import errors
from api.errors import ApiError
from api.relay import websocket_messages as messages
from api.relay.dialects.interface import Chunk
from api.relay.dialects.openai import usage_of
from api.relay.job_stream import JobStream
from api.relay.subscriber import ClientGone
from api.relay.websocket_messages import ServerMessage
from worker.protocol.event import Terminal

log = logging.getLogger("headrace.relay")

_CANCELLED_BY_CLIENT = "cancelled_by_client"
_RETRY_PAUSE_S = 0.5


class WebSocketRequest:
    """`open_stream` may take its time and raises ApiError, `send` raises ClientGone.

    `on_end` is called with the id before the last event is sent.
    """

    def __init__(
        self,
        request_id: str,
        after: int,
        open_stream: Callable[[], JobStream],
        send: Callable[[ServerMessage], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.id = request_id
        self._after = after
        self._open_stream = open_stream
        self._send = send
        self._on_end = on_end
        self._stream: JobStream | None = None
        self._is_cancelled = False
        self._is_stopped = False
        self._finishes: dict[int, str] = {}
        self._thread = threading.Thread(target=self._run, name="websocket-request", daemon=True)

    @property
    def can_detach(self) -> bool:
        """Whether its job goes on when the socket closes."""
        return self._stream is not None and self._stream.view.resume_grace_ms > 0

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def cancel(self) -> None:
        """End the job; the last event says so, unless the job was faster. Returns at once."""
        if self._is_cancelled:
            return
        self._is_cancelled = True
        # While it is still being prepared there is nothing to cancel: its thread will see the flag.
        if self._stream is not None:
            self._start_cancelling(self._stream)

    def stop(self) -> None:
        """The socket is gone: cancel the job or leave it its grace, and say no more."""
        self._is_stopped = True
        if self._stream is not None:
            self._stream.stop()

    def _run(self) -> None:
        last = self._relay_to_the_end()
        self._on_end(self.id)  # first, so that whoever reads the last event may use its id again
        if last is not None:
            with contextlib.suppress(ClientGone):
                self._send(last)

    def _relay_to_the_end(self) -> ServerMessage | None:
        """The last event; None when there is nobody to tell."""
        try:
            stream = self._open_stream()
            try:
                return self._relay(stream)
            finally:
                stream.leave()
        except ClientGone:
            return None
        except ApiError as error:
            return messages.failed(self.id, error)
        except Exception:
            log.exception("a WebSocket request broke", extra={"job_id": self._stream and self._stream.job_id})
            return messages.failed(self.id, errors.internal())

    def _relay(self, stream: JobStream) -> ServerMessage:
        self._stream = stream
        if self._is_stopped:
            raise ClientGone
        if self._is_cancelled:
            self._start_cancelling(stream)
        self._send(messages.accepted(self.id, stream.job_id))
        try:
            for item in stream.chunks():
                if item is not None:
                    self._pass_on(*item)
        except ApiError:
            if _is_clients_cancel(stream.terminal):
                return messages.done(self.id, "cancelled", None)
            raise
        usage = usage_of(stream.terminal) if stream.terminal else None
        return messages.done(self.id, self._finish_reason(), usage)

    def _pass_on(self, number: int, chunk: Chunk) -> None:
        for choice in chunk["choices"]:
            if choice["finish_reason"]:
                self._finishes[choice["index"]] = choice["finish_reason"]
        if number > self._after:
            self._send(messages.chunk(self.id, number, chunk))

    def _finish_reason(self) -> str:
        """That of the only choice; of several (their chunks name each one's) ``length`` if any was cut off."""
        reasons = [self._finishes[index] for index in sorted(self._finishes)]
        return "length" if "length" in reasons else reasons[0]

    def _start_cancelling(self, stream: JobStream) -> None:
        """Beside the socket's reader, which has pings to answer while the broker is slow or away."""
        threading.Thread(target=self._cancel, args=(stream,), name="websocket-cancel", daemon=True).start()

    def _cancel(self, stream: JobStream) -> None:
        while self._thread.is_alive():
            try:
                stream.cancel(_CANCELLED_BY_CLIENT, "The client cancelled the request.")
                return
            except redis.RedisError as error:
                log.warning("cancelling again", extra={"job_id": stream.job_id, "error": repr(error)})
                time.sleep(_RETRY_PAUSE_S)


def _is_clients_cancel(terminal: Terminal | None) -> bool:
    """Read from the job's own end, so that a client that resumes the job later is told the same."""
    return terminal is not None and terminal.state == "cancelled" and terminal.code == _CANCELLED_BY_CLIENT
