"""Redis connections: fast retries, so that a broker restart is a pause of a second and not an error."""

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

# Under a second in all: callers that must survive a longer outage retry on their own and stay able to stop.
_NUM_RETRIES = 3
_RETRY_PAUSE_S = 0.1


def connect(url: str, *, socket_timeout_s: float = 5.0) -> redis.Redis:
    """A client with its own pool. Blocking commands must ask for less than `socket_timeout_s`.

    Every script tolerates being run twice, so a call whose reply was lost may be repeated.
    """
    return redis.Redis.from_url(
        url,
        retry=Retry(ConstantBackoff(_RETRY_PAUSE_S), _NUM_RETRIES),
        socket_timeout=socket_timeout_s,
        socket_connect_timeout=1.0,
        socket_keepalive=True,
        health_check_interval=0,
    )
