"""The server's end of one WebSocket: whole frames out, whole text messages in, and a clean end whatever happens.

wsproto speaks the frames. This class stands in for flask-sock's own server, which writes from several threads at once,
sends partly, buffers without bound, forces compression and closes without waiting for the other side.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from gevent.timeout import with_timeout
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from api.relay.subscriber import ClientGone

READ_SIZE = 16 * 1024  # bytes: what one client may say before the others have their turn
LINGER_S = 3.0  # so long the other side has to answer a close frame, while what it still sends is thrown away


class WebSocketConnection:
    """One accepted WebSocket. Any thread may `send` and `close`; one reads `messages`."""

    mode = "gunicorn"  # tells flask-sock that the server must not write a response after the last frame

    def __init__(
        self, environ: dict[str, Any], *, max_message_bytes: int, ping_s: float, stall_timeout_s: float
    ) -> None:
        """Sends the opening handshake; the route has checked the request's headers."""
        self.close_code = int(CloseReason.ABNORMAL_CLOSURE)
        self._socket: socket.socket = environ["gunicorn.socket"]
        self._max_message_bytes = max_message_bytes
        self._ping_s = ping_s
        self._protocol = Connection(ConnectionType.SERVER)
        self._sending = threading.Lock()
        self._is_closing = False  # a close frame was sent, or nothing can be sent: not a byte may follow
        self._is_broken = False  # what comes in is no sequence of frames any more
        self._has_ended = False
        self._parts: list[str] = []
        self._size = 0
        # The kernel gives up on a client that reads nothing, so no writer hangs on it for ever.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(stall_timeout_s * 1000))
        with contextlib.suppress(OSError):
            self._socket.sendall(_switching_protocols(environ["HTTP_SEC_WEBSOCKET_KEY"]))

    def send(self, text: str) -> None:
        """One whole text message. Blocks while the client is slow. Raises ClientGone when the socket is closing."""
        self._transmit(TextMessage(data=text))

    def close(self, code: int = CloseReason.NORMAL_CLOSURE, reason: str = "") -> None:
        """Start the close handshake, once; `messages` ends when the client has answered or the time for that is up."""
        if self._is_closing:
            return
        with contextlib.suppress(ClientGone):
            self._transmit(CloseConnection(code=code, reason=reason))
            self.close_code = int(code)
            timer = threading.Timer(LINGER_S, self._cut)
            timer.daemon = True
            timer.start()

    def messages(self) -> Iterator[str]:
        """Whole text messages until the connection ends, however that comes about. Answers pings and closes."""
        try:
            while not self._has_ended and (data := self._read()):
                yield from self._texts(data)
                time.sleep(0)  # reading and writing that need not wait would keep the turn for ever
        except OSError:
            pass  # reset, or given up by the kernel
        finally:
            self._is_closing = self._has_ended = True
            self._cut()

    def _read(self) -> bytes:
        """What came in; empty when the client is gone, which includes one that leaves a ping unanswered."""
        for is_pinged in (False, True):
            data: bytes | None = with_timeout(self._ping_s, self._socket.recv, READ_SIZE, timeout_value=None)
            if data is not None:
                return data
            if not is_pinged:
                self._reply(Ping())
        self.close(CloseReason.INTERNAL_ERROR, "The ping was not answered.")
        return b""

    def _texts(self, data: bytes) -> Iterator[str]:
        if self._is_broken:
            return
        self._protocol.receive_data(data)
        for event in self._protocol.events():
            if isinstance(event, CloseConnection):
                self._end(event)
            elif isinstance(event, Ping):
                self._reply(event.response())
            elif self._is_closing:
                continue
            elif isinstance(event, BytesMessage):
                self.close(CloseReason.UNSUPPORTED_DATA, "Only text messages are understood.")
            elif isinstance(event, TextMessage) and (text := self._assembled(event)) is not None:
                yield text

    def _assembled(self, event: TextMessage) -> str | None:
        """The message that this part completes, if it does."""
        self._size += max(1, len(event.data.encode()))  # empty fragments without end are no way around the limit
        self._parts.append(event.data)
        if self._size > self._max_message_bytes:
            self._parts.clear()
            self.close(CloseReason.MESSAGE_TOO_BIG, f"A message may have {self._max_message_bytes} bytes at most.")
            return None
        if not event.message_finished:
            return None
        text = "".join(self._parts)
        self._parts.clear()
        self._size = 0
        return text

    def _end(self, event: CloseConnection) -> None:
        """The client's close frame, its answer to ours, or (the state tells) frames that break the protocol."""
        if self._protocol.state is ConnectionState.REMOTE_CLOSING:
            self.close_code = int(event.code)
            self._reply(event.response())
            self._has_ended = True
        elif self._protocol.state is ConnectionState.CLOSED:
            self._has_ended = True
        else:
            self.close(event.code, event.reason or "")
            self._is_broken = True
            with contextlib.suppress(OSError):  # its answer could not be understood: tell it so by ending our side
                self._socket.shutdown(socket.SHUT_WR)

    def _reply(self, event: Event) -> None:
        with contextlib.suppress(ClientGone):
            self._transmit(event)

    def _transmit(self, event: Event) -> None:
        with self._sending:
            if self._is_closing:
                raise ClientGone
            self._is_closing = isinstance(event, CloseConnection)
            try:
                self._socket.sendall(self._protocol.send(event))
            except OSError as error:
                self._is_closing = True
                raise ClientGone from error

    def _cut(self) -> None:
        """Wakes whoever still waits on the socket. What was sent arrives all the same; gunicorn closes it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _switching_protocols(key: str) -> bytes:
    lines = (
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + generate_accept_token(key.encode()),
    )
    return b"\r\n".join(lines) + b"\r\n\r\n"
