"""All batches of one pool in Redis: the truth about how far each is. What lies where stands in the scripts.

Every change is one script that looks before it sets, so two drivers of one batch, or one that was killed in the middle,
do no harm.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import redis
from redis.lock import Lock

from api.batch.records import Batch, LineError, Order, batch_of
from worker.protocol import keys
from worker.protocol.lua import script_text

VERBS = (
    "create_batch", "plan_batch", "advance_batch", "collect_batch", "stop_batch", "drain_batch", "finish_batch",
    "claim_webhook",
)  # fmt: skip
LOCK_S = 6.0  # renewed at every step; a driver that was killed holds the batch up for so long
_pack = msgspec.msgpack.encode


class NoSuchBatch(Exception):
    """The batch after which a page is asked for is not there."""


@dataclass(frozen=True)
class Plan:
    """What the validation of a batch's file came to. Names are those of stored objects."""

    name: str
    num_planned: int
    total: int
    failed: int
    model: str
    errors: Sequence[LineError]
    error_part: str


@dataclass(frozen=True)
class Advance:
    """The places from `start` up to `end`: jobs, those in `open`, and errors in the part."""

    start: int
    end: int
    open: Sequence[int] = ()
    failed: int = 0
    error_part: str = ""


@dataclass(frozen=True)
class Collected:
    """Open places that have ended, and the parts that have their rows."""

    places: Sequence[int]
    completed: int
    failed: int
    output_part: str
    error_part: str
    usage: Mapping[str, int] = field(default_factory=dict)


class BatchStore:
    """Every method may raise redis.RedisError."""

    def __init__(self, client: redis.Redis, pool: str) -> None:
        self._redis = client
        self._prefix = keys.prefix(pool)
        self._scripts = {verb: client.register_script(script_text(verb)) for verb in VERBS}

    def create(self, order: Order) -> None:
        """Raises redis.exceptions.OutOfMemoryError when the broker is full."""
        self._run("create_batch", order.id, order.tenant, msgspec.json.encode(order), order.window_s)

    def load(self, batch_id: str) -> Batch | None:
        return next(iter(self.load_all([batch_id])), None)

    def load_all(self, batch_ids: Iterable[str]) -> list[Batch]:
        """Those that are there, in the order asked for."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.time()
        for batch_id in batch_ids:
            pipe.hgetall(f"{self._prefix}batch:{batch_id}")
        (seconds, micros), *rows = pipe.execute()
        now_ms = seconds * 1000 + micros // 1000
        return [batch_of(fields, now_ms) for fields in rows if b"order" in fields]

    def page(self, tenant: str, after: str | None, limit: int) -> tuple[list[Batch], bool]:
        """The tenant's batches that were made before `after`, the newest first, and whether more follow.

        Raises NoSuchBatch.
        """
        index, start = f"{self._prefix}batches:of:{tenant}", 0
        if after is not None:
            rank = self._redis.zrevrank(index, after)
            if rank is None:
                raise NoSuchBatch(after)
            start = cast(int, rank) + 1
        ids = cast(list[bytes], self._redis.zrevrange(index, start, start + limit))
        return self.load_all(name.decode() for name in ids[:limit]), len(ids) > limit

    def active(self) -> list[str]:
        """Ids of the batches that have not ended, the oldest first."""
        return [name.decode() for name in cast(list[bytes], self._redis.zrange(self._prefix + "batches:active", 0, -1))]

    def lock(self, batch_id: str) -> Lock:
        """For one driver at a time: that saves work, and nothing depends on it."""
        name = f"{self._prefix}batch_lock:{batch_id}"
        lock: Lock = self._redis.lock(name, timeout=LOCK_S, blocking=False, thread_local=False)
        return lock

    def plan(self, batch_id: str, plan: Plan) -> bool:
        """False when the batch has its plan already, or has ended."""
        fields = {
            "id": batch_id, "plan": plan.name, "num_planned": plan.num_planned, "total": plan.total,
            "failed": plan.failed, "model": plan.model, "error_part": plan.error_part,
            "errors": msgspec.json.encode(plan.errors).decode(),
        }  # fmt: skip
        return bool(self._run("plan_batch", _pack(fields)))

    def advance(self, batch: Batch, step: Advance) -> bool:
        """False when the cursor is elsewhere by now, or the batch was stopped."""
        fields = {
            "id": batch.id, "from": step.start, "to": step.end, "cause": batch.cause, "open": list(step.open),
            "failed": step.failed, "error_part": step.error_part,
        }  # fmt: skip
        return bool(self._run("advance_batch", _pack(fields)))

    def open_places(self, batch_id: str) -> list[int]:
        return sorted(map(int, cast(set[bytes], self._redis.smembers(f"{self._prefix}batch_open:{batch_id}"))))

    def collect(self, batch_id: str, collected: Collected) -> bool:
        """False when one of the places was collected before."""
        fields = {
            "id": batch_id, "places": list(collected.places), "completed": collected.completed,
            "failed": collected.failed, "output_part": collected.output_part, "error_part": collected.error_part,
            "usage": [item for pair in collected.usage.items() for item in pair],
        }  # fmt: skip
        return bool(self._run("collect_batch", _pack(fields)))

    def stop(self, batch_id: str, cause: str) -> str:
        """The status before; see the script."""
        return cast(bytes, self._run("stop_batch", batch_id, cause)).decode()

    def drain(self, batch_id: str) -> bool:
        """Whether all lines had ended, and its files can be put together now."""
        return bool(self._run("drain_batch", batch_id))

    def parts(self, batch_id: str) -> tuple[list[str], list[str]]:
        """Names of the stored parts that make up the output file and the error file."""
        outputs, errors = (
            cast(list[bytes], self._redis.lrange(f"{self._prefix}{kind}:{batch_id}", 0, -1))
            for kind in ("batch_outputs", "batch_errors")
        )
        return [name.decode() for name in outputs], [name.decode() for name in errors]

    def finish(self, batch_id: str, status: str, fields: Mapping[str, str | int], event: bytes = b"") -> bool:
        """`event`: who listens is to be told. False when it had ended before."""
        flat = [item for pair in fields.items() for item in pair]
        ended = {"id": batch_id, "status": status, "fields": flat, "event": event.decode()}
        return bool(self._run("finish_batch", _pack(ended)))

    def littered(self) -> list[str]:
        """Ids of batches that have ended and left something in the storage or the queue."""
        return [name.decode() for name in cast(set[bytes], self._redis.smembers(self._prefix + "batches:littered"))]

    def cleared(self, batch_id: str) -> None:
        self._redis.srem(self._prefix + "batches:littered", batch_id)

    def forget_ended(self, before_s: float) -> int:
        """Drop the records of batches that ended before that time. How many."""
        index = self._prefix + "batches:ended"
        ids = [name.decode() for name in cast(list[bytes], self._redis.zrangebyscore(index, "-inf", before_s))]
        pipe = self._redis.pipeline(transaction=True)
        for batch in self.load_all(ids):
            pipe.zrem(f"{self._prefix}batches:of:{batch.order.tenant}", batch.id)
            pipe.delete(f"{self._prefix}batch:{batch.id}")
            pipe.zrem(index, batch.id)
        pipe.execute()
        return len(ids)

    def due_webhooks(self, now_s: float) -> list[str]:
        ids = cast(list[bytes], self._redis.zrangebyscore(self._prefix + "webhooks", "-inf", now_s))
        return [name.decode() for name in ids]

    def claim_webhook(self, batch_id: str, first_pause_s: int, longest_pause_s: int) -> tuple[bytes, int, int] | None:
        """(event, when it happened, number of this try); None when it is not due."""
        found: list[Any] = self._run("claim_webhook", batch_id, first_pause_s, longest_pause_s)
        return (found[0], int(found[1]), int(found[2])) if found else None

    def drop_webhook(self, batch_id: str) -> None:
        pipe = self._redis.pipeline(transaction=True)
        pipe.zrem(self._prefix + "webhooks", batch_id)
        pipe.delete(f"{self._prefix}webhook:{batch_id}")
        pipe.execute()

    def totals(self) -> dict[str, int]:
        """lines:completed, lines:failed and the batches ended by state, since the broker's data began."""
        found = cast(dict[bytes, bytes], self._redis.hgetall(self._prefix + "batches:totals"))
        return {name.decode(): int(number) for name, number in found.items()}

    def num_open(self, batch_ids: Sequence[str]) -> int:
        pipe = self._redis.pipeline(transaction=False)
        for batch_id in batch_ids:
            pipe.scard(f"{self._prefix}batch_open:{batch_id}")
        return sum(pipe.execute()) if batch_ids else 0

    def _run(self, verb: str, *args: bytes | str | int) -> Any:
        return self._scripts[verb](keys=[self._prefix], args=args)
