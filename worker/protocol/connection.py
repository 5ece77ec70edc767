"""Redis connections: fast retries, so that a broker restart is a pause of a second and not an error."""

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from worker.protocol.configuration import BadSetting

# Under a second in all: callers that must survive a longer outage retry on their own and stay able to stop.
_NUM_RETRIES = 3
_RETRY_PAUSE_S = 0.1
_MAX_CONNECTIONS = 32  # a burst of streams takes turns instead of opening a connection each
_POOL_WAIT_S = 5.0
# The URL's parts are left out: where a password holds a slash, parsers take a piece of it for the port.
BAD_URL = "expected a URL such as redis://:PASSWORD@HOST:6379/0, with / in a password written as %2F"


def connect(url: str, *, socket_timeout_s: float = 5.0) -> redis.Redis:
    """A client with its own pool. Blocking commands must ask for less than `socket_timeout_s`.

    Every script tolerates being run twice, so a call whose reply was lost may be repeated. Raises BadSetting when the
    URL cannot be understood.
    """
    try:
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            timeout=_POOL_WAIT_S,
            retry=Retry(ConstantBackoff(_RETRY_PAUSE_S), _NUM_RETRIES),
            socket_timeout=socket_timeout_s,
            socket_connect_timeout=1.0,
            socket_keepalive=True,
        )
    except ValueError as error:
        raise BadSetting(f"HEADRACE_REDIS_URL: {BAD_URL}") from error
    return redis.Redis.from_pool(pool)


def check_access(url: str) -> None:
    """Raises BadSetting where the broker answers, but refuses us: that does not get better by itself.

    One that cannot be reached yet is waited for by whoever needs it.
    """
    client = connect(url)
    try:
        client.ping()
    except (redis.AuthenticationError, redis.ResponseError) as error:
        raise BadSetting(f"HEADRACE_REDIS_URL: {reason_of(error)}") from error
    except redis.RedisError:
        pass
    finally:
        client.close()


def reason_of(error: Exception) -> str:
    """Without a password Redis lectures on HELLO, which redis-py sent on its own."""
    return "Authentication required." if str(error).startswith("HELLO ") else str(error)
