"""What one client does over its WebSocket: many requests at once, told apart by the ids that it chose."""

import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec

from api import errors
from api.errors import ApiError, bad_request
from api.relay import websocket_messages as messages
from api.relay.job_stream import JobStream
from api.relay.subscriber import ClientGone
from api.relay.websocket import WebSocketConnection
from api.relay.websocket_messages import CancelMessage, RequestMessage, ResumeMessage, ServerMessage
from api.relay.websocket_request import WebSocketRequest

log = logging.getLogger("headrace.relay")

_LEAVE_S = 5.0  # so long the requests of a closed socket have to let go of their jobs

StartMessage = RequestMessage | ResumeMessage


class WebSocketSession:
    """`open_stream` turns a message into the stream of its job; it runs on the request's thread and raises ApiError."""

    def __init__(
        self, connection: WebSocketConnection, open_stream: Callable[[StartMessage], JobStream], max_requests: int
    ) -> None:
        self._connection = connection
        self._open_stream = open_stream
        self._max_requests = max_requests
        self._running: dict[str, WebSocketRequest] = {}
        self._is_draining = False

    def run(self) -> None:
        """Serve the client until the socket ends; then nothing of it is left running."""
        try:
            for text in self._connection.messages():
                self._handle(text)
        finally:
            self._leave()

    def close(self, code: int, reason: str) -> None:
        self._connection.close(code, reason)

    def drain(self) -> bool:
        """Take no new requests; whether the socket can be closed without ending a job."""
        self._is_draining = True
        return all(request.can_detach for request in list(self._running.values()))

    def _handle(self, text: str) -> None:
        """Nothing that a client says may end its socket, or reach beyond it."""
        request_id: str | None = None
        try:
            fields = messages.message_fields(text)
            request_id = messages.id_of(fields)
            self._obey(messages.check_message(fields))
        except ApiError as error:
            self._refuse(request_id, error)
        except Exception:
            log.exception("a WebSocket message broke its handler")
            self._refuse(request_id, errors.internal())

    def _obey(self, message: messages.ClientMessage) -> None:
        if isinstance(message, CancelMessage):
            self._cancel(message.id)
        else:
            self._start(message)

    def _start(self, message: StartMessage) -> None:
        if message.id in self._running:
            raise bad_request("A request with this id is still running on this WebSocket.", "id", "duplicate_id")
        if self._is_draining:
            raise errors.unavailable("This server is shutting down. Please connect again.", 1.0)
        if len(self._running) >= self._max_requests:
            raise errors.rate_limited(f"This WebSocket already runs {self._max_requests} requests.", 1.0)
        request = WebSocketRequest(
            message.id,
            message.after if isinstance(message, ResumeMessage) else 0,
            partial(self._open_stream, message),
            self._send,
            self._forget,
        )
        self._running[message.id] = request
        request.start()

    def _cancel(self, request_id: str) -> None:
        request = self._running.get(request_id)
        if request is None:
            raise bad_request("No request with this id is running on this WebSocket.", "id", "unknown_id")
        request.cancel()

    def _forget(self, request_id: str) -> None:
        del self._running[request_id]

    def _refuse(self, request_id: str | None, error: ApiError) -> None:
        with contextlib.suppress(ClientGone):  # the loop over the messages ends by itself
            self._send(messages.failed(request_id, error))

    def _send(self, message: ServerMessage) -> None:
        self._connection.send(msgspec.json.encode(message).decode())

    def _leave(self) -> None:
        left = list(self._running.values())
        for request in left:
            request.stop()
        deadline_s = time.monotonic() + _LEAVE_S
        for request in left:
            request.join(max(0.0, deadline_s - time.monotonic()))
        log.info("websocket closed", extra={"code": self._connection.close_code, "num_left": len(left)})
