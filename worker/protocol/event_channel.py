"""The channel on which each engine step appears as one frame."""

import redis

from worker.protocol import keys
from worker.protocol.event import Event, decode_frame


class EventChannel:
    """A subscription to one pool's frames. Frames may be lost on a reconnect: the replay list is the truth."""

    def __init__(self, client: redis.Redis, pool: str, wait_s: float) -> None:
        """Subscribed when it returns. `wait_s`: after so long without a frame it says so. Raises redis.RedisError."""
        # A bare connection, since redis-py's own subscription asks the system twice before it reads, and writes every
        # message of protocol 3 into a log that nobody keeps.
        options = client.connection_pool.connection_kwargs | {"socket_timeout": wait_s, "protocol": 2}
        self._connection = client.connection_pool.connection_class(**options)
        self._connection.connect()
        self._connection.send_command("SUBSCRIBE", keys.prefix(pool) + "frames")
        self._connection.read_response()

    def next_frame(self) -> list[tuple[str, int, Event]]:
        """(job id, sequence number, event) rows, or none after a quiet `wait_s`. Raises redis.RedisError."""
        try:
            _kind, _channel, frame = self._connection.read_response(disconnect_on_error=False)
        except redis.TimeoutError:
            return []
        return decode_frame(frame)

    def close(self) -> None:
        self._connection.disconnect()
