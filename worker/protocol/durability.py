"""Waiting until the broker's disk has what was written: for what must not be lost once it was acknowledged."""

import redis

_WAIT_MS = 3000  # the broker writes its file out once a second
# A write that a full broker takes too: what is waited for may be what makes room.
_MARK = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], 1)"


def wait_durable(client: redis.Redis, prefix: str) -> bool:
    """Whether all that anybody wrote before this call is on the broker's disk.

    False where the broker keeps no append-only file, or its disk takes longer than three seconds. Raises
    redis.RedisError when the broker is away.
    """
    # WAITAOF speaks of the writes of its own connection, and the pool may have used another for what matters. The file
    # is written in order, so a write of this connection stands for all before it.
    pipe = client.pipeline(transaction=False)
    pipe.eval(_MARK, 1, prefix + "tide")
    pipe.waitaof(1, 0, _WAIT_MS)
    written, waited = pipe.execute(raise_on_error=False)
    if isinstance(written, redis.RedisError):
        raise written
    return not isinstance(waited, redis.RedisError) and int(waited[0]) >= 1
