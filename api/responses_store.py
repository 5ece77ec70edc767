"""The responses that are kept in Redis: what was asked and, once it is known, the answer.

The answer of a response that is younger than its job is read from the job's own events; see api/routes/known_responses.
"""

import math
from collections.abc import Iterable
from typing import Any, cast

import msgspec
import redis

from api import errors
from api.pipeline.admission import broker_away
from api.pipeline.responses_items import Item
from api.stream_view import StreamView
from worker.protocol import keys


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

    def __init__(self, client: redis.Redis, pool: str, ttl_s: float) -> None:
        self._redis = client
        self._prefix = keys.prefix(pool) + "response:"
        self.ttl_ms = math.ceil(ttl_s * 1000)

    def save(self, response_id: str, stored: StoredResponse, timeout_ms: int) -> None:
        """Keep it for its own time and the time it may take. What it goes on from is kept as long."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(self._prefix + response_id, "record", msgspec.msgpack.encode(stored))
        pipe.pexpire(self._prefix + response_id, self.ttl_ms + timeout_ms)
        for ancestor in stored.ancestors:
            pipe.pexpire(self._prefix + ancestor, self.ttl_ms + timeout_ms, gt=True)
        self._execute(pipe, response_id)

    def keep_answer(self, response_id: str, answer: dict[str, Any]) -> None:
        """May be repeated: the answer of a job is the same whoever reads it."""
        if not self.load([response_id]):
            return  # deleted meanwhile
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(self._prefix + response_id, "answer", msgspec.json.encode(answer))
        pipe.pexpire(self._prefix + response_id, self.ttl_ms)
        self._execute(pipe, response_id)

    def load(self, response_ids: Iterable[str]) -> dict[str, KeptResponse]:
        """Those of them that are kept."""
        wanted = list(response_ids)
        pipe = self._redis.pipeline(transaction=False)
        for response_id in wanted:
            pipe.hmget(self._prefix + response_id, ["record", "answer"])
        rows = cast(list[list[bytes | None]], self._execute(pipe, None)) if wanted else []
        return {
            response_id: KeptResponse(_decoder.decode(record), msgspec.json.decode(answer) if answer else None)
            for response_id, (record, answer) in zip(wanted, rows, strict=True)
            if record is not None
        }

    def delete(self, response_id: str) -> None:
        pipe = self._redis.pipeline(transaction=False)
        pipe.delete(self._prefix + response_id)
        self._execute(pipe, response_id)

    @staticmethod
    def _execute(pipe: Any, response_id: str | None) -> list[Any]:
        try:
            replies: list[Any] = pipe.execute()
        except redis.exceptions.OutOfMemoryError as error:
            raise errors.unavailable(
                "The memory for stored responses is full. Please try again later.", 10.0
            ) from error
        except redis.RedisError as error:
            raise broker_away(response_id) from error
        return replies
