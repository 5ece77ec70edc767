"""What one connection remembers beside the store: the last conversations on it, within a number of bytes."""

from collections.abc import Iterator, Mapping

import msgspec

from api.responses.known import Remembered

MAX_REMEMBERED = 16
MAX_BYTES = 8 << 20


class ConversationMemory(Mapping[str, Remembered]):
    """By the id of the last response. What is forgotten can only be gone on from where it is stored."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._known: dict[str, tuple[Remembered, int]] = {}  # the oldest first, each with its bytes
        self._num_bytes = 0

    def add(self, response_id: str, remembered: Remembered) -> None:
        num_bytes = len(msgspec.msgpack.encode(remembered.items))
        if num_bytes > self._max_bytes:
            return
        self._known[response_id] = (remembered, num_bytes)
        self._num_bytes += num_bytes
        while len(self._known) > MAX_REMEMBERED or self._num_bytes > self._max_bytes:
            self._num_bytes -= self._known.pop(next(iter(self._known)))[1]

    def __getitem__(self, response_id: str) -> Remembered:
        return self._known[response_id][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
