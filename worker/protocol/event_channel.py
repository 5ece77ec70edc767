"""The channel on which each engine step appears as one frame."""

import redis

from worker.protocol import keys
from worker.protocol.event import Event, decode_frame


class EventChannel:
    """A subscription to one pool's frames. Frames may be lost on a reconnect: the replay list is the truth."""

    def __init__(self, client: redis.Redis, pool: str) -> None:
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(keys.prefix(pool) + "frames")

    def next_frame(self, timeout_s: float) -> list[tuple[str, int, Event]]:
        """(job id, sequence number, event) rows, or none after a quiet `timeout_s`. Raises redis.RedisError."""
        message = self._pubsub.get_message(timeout=timeout_s)
        return decode_frame(message["data"]) if message else []

    def close(self) -> None:
        self._pubsub.close()
