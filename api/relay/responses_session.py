"""What a client does over the WebSocket mode of /v1/responses: one turn after the other, or several lanes of them."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from wsproto.frame_protocol import CloseReason

from api import errors
from api.errors import ApiError, bad_request
from api.pipeline.parse import UncheckedRequest, parse_json
from api.relay.dialects.responses import LAST_EVENTS
from api.relay.job_stream import JobStream
from api.relay.subscriber import ClientGone
from api.relay.websocket import WebSocketConnection
from api.relay.websocket_messages import MAX_ID_CHARS, ServerMessage

log = logging.getLogger("headrace.relay")

_LEAVE_S = 5.0  # so long the turns of a closed socket have to let go of their jobs
_POLL_S = 0.05


@dataclass(frozen=True)
class OpenTurn:
    """An admitted turn. `ended` is told the final Response before the client is, or None when there is none to tell."""

    stream: JobStream
    ended: Callable[[dict[str, Any] | None], None]


@dataclass(frozen=True)
class SessionLimits:
    max_turns: int  # running and waiting
    max_bytes: int  # of the messages of these turns
    max_age_s: float


class ResponsesSession:
    """`open_turn` makes a turn of a ``response.create``; it runs on the lane's thread and raises ApiError."""

    def __init__(
        self,
        connection: WebSocketConnection,
        open_turn: Callable[[UncheckedRequest], OpenTurn],
        limits: SessionLimits,
    ) -> None:
        self._connection = connection
        self._open_turn = open_turn
        self._limits = limits
        self._lock = threading.Lock()
        # The messages as they came, which takes less than what they say. A lane is here while its thread runs.
        self._waiting: dict[str | None, deque[bytes]] = {}
        self._num_bytes = 0  # of the turns that run or wait
        self._threads: list[threading.Thread] = []
        self._streams: dict[str | None, JobStream] = {}
        self._num_turns = 0
        self._is_draining = False
        self._is_too_old = False
        self._is_over = False

    def run(self) -> None:
        """Serve the client until the socket ends; then nothing of it is left running."""
        timer = threading.Timer(self._limits.max_age_s, self._send_away)
        timer.daemon = True
        timer.start()
        try:
            for text in self._connection.messages():
                self._handle(text)
        finally:
            timer.cancel()
            self._leave()

    def close(self, code: int, reason: str) -> None:
        self._connection.close(code, reason)

    def drain(self) -> bool:
        """Take no new turns; whether the socket can be closed without ending one."""
        self._is_draining = True
        return self._num_turns == 0

    def _handle(self, text: str) -> None:
        """Nothing that a client says may end its socket, or reach beyond it."""
        lane: str | None = None
        try:
            message = text.encode()
            fields = parse_json(message)
            lane = _lane_of(fields)
            _check_type(fields.get("type"))
            self._take(lane, message)
        except ApiError as error:
            self._refuse(lane, error)
        except Exception:
            log.exception("a WebSocket message broke its handler")
            self._refuse(lane, errors.internal())

    def _take(self, lane: str | None, message: bytes) -> None:
        if self._is_too_old:
            raise self._too_old()
        if self._is_draining:
            raise errors.unavailable("This server is shutting down. Please connect again.", 1.0)
        with self._lock:
            if self._num_turns >= self._limits.max_turns:
                raise errors.rate_limited(f"This WebSocket already has {self._num_turns} turns to run.", 1.0)
            if self._num_turns and self._num_bytes + len(message) > self._limits.max_bytes:
                raise errors.rate_limited(f"The turns of this WebSocket already have {self._num_bytes} bytes.", 1.0)
            self._num_turns += 1
            self._num_bytes += len(message)
            if lane in self._waiting:
                self._waiting[lane].append(message)
                return
            self._waiting[lane] = deque([message])
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            thread = threading.Thread(target=self._run_lane, args=(lane,), name="responses-lane", daemon=True)
            self._threads.append(thread)
        thread.start()

    def _run_lane(self, lane: str | None) -> None:
        while (message := self._next(lane)) is not None:
            try:
                self._run_turn(lane, parse_json(message))
            except ClientGone:
                pass  # `_leave` ends the lanes
            except ApiError as error:
                self._refuse(lane, error)
            except Exception:
                log.exception("a turn on a WebSocket broke")
                self._refuse(lane, errors.internal())
            finally:
                with self._lock:
                    self._num_turns -= 1
                    self._num_bytes -= len(message)

    def _next(self, lane: str | None) -> bytes | None:
        with self._lock:
            if self._waiting[lane] and not self._is_over:
                return self._waiting[lane].popleft()
            del self._waiting[lane]
            return None

    def _run_turn(self, lane: str | None, fields: UncheckedRequest) -> None:
        turn = self._open_turn(fields)
        last: dict[str, Any] | None = None
        self._streams[lane] = turn.stream
        try:
            if self._is_over:
                raise ClientGone
            for item in turn.stream.chunks():
                if item is not None and item[1]["type"] in LAST_EVENTS:
                    last = item[1]
                elif item is not None:
                    self._say(lane, item[1])
        finally:
            del self._streams[lane]
            turn.stream.leave()
            turn.ended(last and last["response"])
        if last is not None:
            self._say(lane, last)

    def _send_away(self) -> None:
        """The connection is as old as it may be: what runs may end, then the client has to connect anew."""
        self._is_too_old = True
        while self._num_turns and not self._is_over:
            time.sleep(_POLL_S)
        self._refuse(None, self._too_old())
        self.close(CloseReason.GOING_AWAY, "This connection is as old as it may be. Please connect again.")

    def _too_old(self) -> ApiError:
        minutes = f"{self._limits.max_age_s / 60:g} minutes"
        message = f"Responses websocket connection limit reached ({minutes}). Create a new websocket connection."
        return bad_request(message, code="websocket_connection_limit_reached")

    def _refuse(self, lane: str | None, error: ApiError) -> None:
        told = error.body()["error"] | ({"headers": error.headers} if error.headers else {})
        with contextlib.suppress(ClientGone):  # the loop over the messages ends by itself
            self._say(lane, {"type": "error", "status": error.status, "error": told})

    def _say(self, lane: str | None, message: ServerMessage) -> None:
        told = message if lane is None else message | {"stream_id": lane}
        self._connection.send(msgspec.json.encode(told).decode())

    def _leave(self) -> None:
        self._is_over = True
        for stream in list(self._streams.values()):
            stream.stop()
        deadline_s = time.monotonic() + _LEAVE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        log.info("websocket closed", extra={"code": self._connection.close_code, "num_left": self._num_turns})


def _lane_of(fields: UncheckedRequest) -> str | None:
    """Raises ApiError 400."""
    lane = fields.get("stream_id")
    if lane is None or (isinstance(lane, str) and 0 < len(lane) <= MAX_ID_CHARS):
        return lane
    raise bad_request(f"'stream_id' must be a string of 1 to {MAX_ID_CHARS} characters.", "stream_id")


def _check_type(kind: Any) -> None:
    if kind is None:
        raise bad_request("The message has no type; send 'response.create'.", "type")
    if kind != "response.create":
        message = f"Messages of type {str(kind)[:60]!r} are not served here; send 'response.create'."
        raise bad_request(message, "type", "unsupported_parameter")
