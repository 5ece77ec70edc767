"""The stores behind files and batches, where they cannot be reached."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from api import errors
from api.batch.storage import StorageUnavailable
from api.pipeline.admission import broker_away

log = logging.getLogger("headrace.api")
_ADVICE_S = 10.0


@contextmanager
def stores_asked() -> Iterator[None]:
    """Raises ApiError 503 in place of the broker's and the storage's errors."""
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise errors.unavailable("The memory of the queue is full. Please try again later.", _ADVICE_S) from error
    except redis.RedisError as error:
        raise broker_away(None, error) from error
    except StorageUnavailable as error:
        log.warning(str(error))
        message = "The storage of files cannot be reached at the moment."
        raise errors.unavailable(message, _ADVICE_S) from error
