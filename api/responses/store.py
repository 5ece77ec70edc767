"""The responses that are kept in Redis: what was asked and, once it is known, the answer.

They may take so many bytes and no more, a tenant's half of that: the oldest make room for the new ones.
The answer of a response that is younger than its job is read from the job's own events; see api/responses/known.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import redis

from api import errors
from api.pipeline.admission import broker_away
from api.pipeline.responses_items import Item
from api.stream_view import StreamView
from worker.protocol import keys
from worker.protocol.lua import Scripts


class StoredResponse(msgspec.Struct, frozen=True):
    """What a response was asked. The conversation before its own items is that of its ancestors, the oldest first."""

    tenant: str
    view: StreamView
    items: tuple[Item, ...]
    ancestors: tuple[str, ...] = ()


class KeptResponse(msgspec.Struct, frozen=True):
    """`answer` is the final Response object, None while it is not known here."""

    stored: StoredResponse
    answer: dict[str, Any] | None = None


_decoder = msgspec.msgpack.Decoder(StoredResponse)


class ResponseStore:
    """One pool's responses, each a hash: `record` is the StoredResponse, `answer` the Response as JSON.

    Every method raises ApiError 503 when the broker is away or full.
    """

    def __init__(self, client: redis.Redis, pool: str, ttl_s: float, max_bytes: int) -> None:
        self._redis = client
        self._scripts = Scripts(client, keys.prefix(pool))
        self._prefix = keys.prefix(pool) + "response:"
        self._max_bytes = max_bytes
        self.ttl_ms = math.ceil(ttl_s * 1000)

    @property
    def tenant_bytes(self) -> int:
        """What the responses of one tenant may take."""
        return self._max_bytes // 2

    def check_size(self, stored: StoredResponse) -> None:
        """Raises ApiError 400 for what can never be kept, before a job is admitted for it."""
        if len(msgspec.msgpack.encode(stored)) > self.tenant_bytes:
            raise _too_large(self.tenant_bytes)

    def save(self, response_id: str, stored: StoredResponse, timeout_ms: int) -> None:
        """Keep it for its own time and the time it may take. What it goes on from is kept as long.

        The tenant's oldest responses make room for it. Also raises ApiError 400 when it is too large.
        """
        has_job = int(stored.view.kept_ms > 0)
        lifetime_ms = self.ttl_ms + timeout_ms
        limits = (self._max_bytes, self.tenant_bytes)
        record = msgspec.msgpack.encode(stored)
        with _broker_asked(response_id):
            verdict = self._scripts.run(
                "store_response", response_id, stored.tenant, record, lifetime_ms, has_job, *limits, *stored.ancestors
            )
        if verdict == b"too_large":
            raise _too_large(self.tenant_bytes)
        if verdict == b"full":
            raise _full()

    def keep_answer(self, response_id: str, answer: dict[str, Any]) -> None:
        """May be repeated: the answer of a job is the same whoever reads it."""
        with _broker_asked(response_id):
            self._scripts.run("store_answer", response_id, msgspec.json.encode(answer), self.ttl_ms)

    def load(self, response_ids: Iterable[str]) -> dict[str, KeptResponse]:
        """Those of them that are kept."""
        wanted = list(response_ids)
        pipe = self._redis.pipeline(transaction=False)
        for response_id in wanted:
            pipe.hmget(self._prefix + response_id, ["record", "answer"])
        with _broker_asked(None):
            rows = cast(list[list[bytes | None]], pipe.execute()) if wanted else []
        return {
            response_id: KeptResponse(_decoder.decode(record), msgspec.json.decode(answer) if answer else None)
            for response_id, (record, answer) in zip(wanted, rows, strict=True)
            if record is not None
        }

    def num_bytes(self, response_ids: Iterable[str]) -> int:
        """What those of them that are kept take, at least."""
        pipe = self._redis.pipeline(transaction=False)
        for response_id in response_ids:
            pipe.hstrlen(self._prefix + response_id, "record")
            pipe.hstrlen(self._prefix + response_id, "answer")
        with _broker_asked(None):
            return sum(cast(list[int], pipe.execute()))

    def delete(self, response_id: str) -> None:
        with _broker_asked(response_id):
            self._scripts.run("forget_response", response_id)


@contextmanager
def _broker_asked(response_id: str | None) -> Iterator[None]:
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise _full() from error
    except redis.RedisError as error:
        raise broker_away(response_id, error) from error


def _full() -> errors.ApiError:
    return errors.unavailable("The memory for stored responses is full. Please try again later.", 10.0)


def _too_large(max_bytes: int) -> errors.ApiError:
    message = f"This response is too large to be stored: all those of a tenant may take {max_bytes} bytes."
    return errors.bad_request(message, "store", "response_too_large")
