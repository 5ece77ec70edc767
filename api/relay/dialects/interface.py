"""What every dialect gives.

Chunks and their numbers are a pure function of the view and of the job's events from the first, whatever the timing:
any process gives the same chunks, so a client can go on at another one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from api.errors import ApiError
from worker.protocol.event import Event

Chunk = dict[str, Any]


@dataclass(frozen=True)
class Framing:
    """How a dialect's stream looks as server-sent events."""

    event: Callable[[Chunk], bytes]  # a chunk's event, without an id
    error: Callable[[ApiError], bytes]  # after the first byte the status is spent: the error travels in the stream
    ping: bytes  # sent when nothing else was for a while
    end: bytes  # what closes a stream


class Dialect(Protocol):
    """One job in one dialect. Each object reads a job's events once."""

    framing: Framing
    tells_bad_ends: bool  # whether `chunks` says how a job failed; else the stream ends with an error of the framing

    def opening(self) -> Iterator[Chunk]:
        """The chunks that come before any event."""
        ...

    def chunks(self, event: Event) -> Iterator[Chunk]:
        """The chunks this event adds."""
        ...

    def whole(self, events: Iterable[Event]) -> dict[str, Any]:
        """The answer of a job that has ended, as one object. `events` are all of its events."""
        ...
