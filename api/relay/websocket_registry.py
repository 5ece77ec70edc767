"""The WebSockets that one API process holds: how many there may be, and how they are sent away when it ends."""

import threading
import time
from typing import Protocol

from prometheus_client import Gauge
from wsproto.frame_protocol import CloseReason

_POLL_S = 0.2
_FULL = (CloseReason.TRY_AGAIN_LATER, "This server holds as many WebSockets as it may. Please try again later.")
_DRAINING = (CloseReason.SERVICE_RESTART, "This server is shutting down. Please connect again.")


class Session(Protocol):
    """What one client does over its WebSocket."""

    def run(self) -> None:
        """Serve the client until the socket ends."""
        ...

    def close(self, code: int, reason: str) -> None: ...

    def drain(self) -> bool:
        """Take no new requests; whether the socket can be closed without ending a job."""
        ...


class WebSocketRegistry:
    """One per process. SDKs reconnect by themselves after both codes it closes with: 1013 and 1012."""

    def __init__(self, max_sockets: int, num_open: Gauge) -> None:
        self._max_sockets = max_sockets
        self._num_open = num_open
        self._sessions: set[Session] = set()
        self._is_draining = False

    def serve(self, session: Session) -> None:
        """Run the session to its end, or send it away when there is no room for it."""
        if self._is_draining or len(self._sessions) >= self._max_sockets:
            session.close(*(_DRAINING if self._is_draining else _FULL))
            session.run()  # to the end of the close handshake
            return
        self._sessions.add(session)
        self._num_open.inc()
        try:
            session.run()
        finally:
            self._num_open.dec()
            self._sessions.discard(session)

    def drain(self, grace_s: float) -> None:
        """Send every client to another process: at once, or when what it runs and cannot resume elsewhere has ended.

        After `grace_s` nobody is spared any more. Returns when no socket is left, or a little after the grace.
        """
        self._is_draining = True
        deadline_s = time.monotonic() + grace_s
        sent_away: set[Session] = set()
        while self._sessions:
            is_late = time.monotonic() >= deadline_s
            for session in self._sessions - sent_away:
                if session.drain() or is_late:
                    sent_away.add(session)
                    # On a thread each: a client that does not read holds up the close frame meant for it.
                    threading.Thread(target=session.close, args=_DRAINING, daemon=True).start()
            if is_late:
                return
            time.sleep(_POLL_S)
