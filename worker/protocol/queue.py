"""The queue as its clients see it: admit, cancel, watch, and the clock that requeues and expires."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import msgspec
import redis

from worker.protocol import keys
from worker.protocol.durability import wait_durable
from worker.protocol.event import Event, Terminal, decode_event, encode_event
from worker.protocol.job import Job, JobClass, encode_job
from worker.protocol.lua import Scripts

Verdict = Literal["admitted", "duplicate", "depth", "tokens", "tenant", "wait"]

_pack = msgspec.msgpack.encode
_WORKER_LOST = encode_event(Terminal("failed", "worker_lost", "The workers that ran this request died."))
_EXPIRED = encode_event(Terminal("expired", "timeout", "The request did not finish within its timeout."))
_ABANDONED = encode_event(Terminal("cancelled", "abandoned", "Nobody was waiting for this request any more."))
_SCAN_COUNT = 1000


@dataclass(frozen=True)
class Bounds:
    """What one class of jobs may use of the queue. Tokens are job costs, times are milliseconds."""

    max_depth: int
    max_tokens: int
    max_tenant_tokens: int
    max_wait_ms: int


@dataclass(frozen=True)
class Keeping:
    """How long a job is kept and for whom. `watch_ms` 0 means that nobody has to be watching it."""

    watch_ms: int
    retention_ms: int
    idempotency_key: str = ""
    client_state: str = ""  # whatever the API needs to relay the job from another process


@dataclass(frozen=True)
class Admission:
    """The queue's answer, and how full the queue is with it."""

    verdict: Verdict
    job_id: str
    tokens_ahead: int
    drain_rate: float  # tokens a second, 0.0 while it is unknown
    num_waiting: int  # jobs of the same class
    tenant_tokens: int  # of the tenant's jobs, waiting and running

    @property
    def wait_s(self) -> float:
        """The time the queued tokens will take, 0.0 while the drain rate is unknown."""
        return self.tokens_ahead / self.drain_rate if self.drain_rate > 0 else 0.0


@dataclass(frozen=True)
class WorkerInfo:
    """A worker with a live lease, as it last described itself."""

    name: str
    pool_tokens: int
    page_size: int
    max_context: int
    fingerprint: str
    step_age_s: float
    is_draining: bool


@dataclass(frozen=True)
class Snapshot:
    """How full the queue is, by class, and who serves it."""

    depth: dict[JobClass, int]
    tokens: dict[JobClass, int]
    num_running: int
    drain_rate: float
    workers: list[WorkerInfo]


class JobQueue:
    """The verbs of one pool's queue that need no worker. Every method may raise redis.RedisError."""

    def __init__(self, client: redis.Redis, pool: str) -> None:
        self._redis = client
        self._prefix = keys.prefix(pool)
        self._scripts = Scripts(client, self._prefix)

    def admit(self, job: Job, bounds: Bounds, keeping: Keeping) -> Admission:
        """Queue the job unless a bound forbids it.

        Raises redis.exceptions.OutOfMemoryError when the broker is full.
        """
        request = {
            "id": job.id, "tenant": job.tenant, "class": int(job.job_class), "cost": job.cost,
            "sequences": job.num_choices, "weight": 1, "max_depth": bounds.max_depth, "max_tokens": bounds.max_tokens,
            "max_tenant_tokens": bounds.max_tenant_tokens, "max_wait_ms": bounds.max_wait_ms,
            "timeout_ms": job.timeout_ms, "watch_ms": keeping.watch_ms, "retention_ms": keeping.retention_ms,
            "idempotency_key": keeping.idempotency_key, "client_state": keeping.client_state,
        }  # fmt: skip
        word, job_id, ahead, rate, depth, held = self._scripts.run("admit", _pack(request), encode_job(job))
        verdict = cast(Verdict, word.decode())
        return Admission(verdict, job_id.decode(), int(ahead), float(rate), int(depth), int(held))

    def cancel(self, job_id: str, code: str, message: str) -> str:
        """'queued' or 'running' when the job was cancelled now, else its terminal state, or 'unknown'."""
        event = encode_event(Terminal("cancelled", code, message))
        state: bytes = self._scripts.run("cancel", job_id, event)
        return state.decode()

    def forget(self, job_id: str) -> None:
        """Drop all that is kept of a job, which ends first if it has not ended yet. Its worker lets go of it."""
        self.cancel(job_id, "deleted", "This request was deleted.")
        self._redis.delete(self._prefix + "job:" + job_id, self._prefix + "out:" + job_id)

    def watch(self, job_ids: list[str], watch_ms: int) -> list[str]:
        """Keep jobs alive for `watch_ms` more. Returns those that Redis does not know."""
        return [job_id.decode() for job_id in self._scripts.run("watch", watch_ms, *job_ids)]

    def requeue_expired(self, lease_ms: int, max_attempts: int) -> dict[str, int]:
        """One tick of the queue's clock; returns how many jobs each rule moved."""
        moved = self._scripts.run("requeue_expired", lease_ms, max_attempts, _WORKER_LOST, _EXPIRED, _ABANDONED)
        return dict(zip(("requeued", "failed", "expired", "abandoned"), map(int, moved), strict=True))

    def replay(self, job_id: str, after: int) -> list[Event]:
        """The job's events with a sequence number above `after`, in order."""
        entries = cast(list[bytes], self._redis.lrange(self._prefix + "out:" + job_id, after, -1))
        return [decode_event(entry) for entry in entries]

    def describe(self, job_id: str) -> dict[str, str]:
        """State, tenant, client_state and the like of a job; empty when Redis does not know it."""
        fields = ("state", "tenant", "worker", "attempts", "client_state")
        values = cast(list[bytes | None], self._redis.hmget(self._prefix + "job:" + job_id, list(fields)))
        return {name: value.decode() for name, value in zip(fields, values, strict=True) if value is not None}

    def states(self, job_ids: Sequence[str]) -> list[str]:
        """The state of each job; empty for one that Redis does not know. Costs one round trip."""
        pipe = self._redis.pipeline(transaction=False)
        for job_id in job_ids:
            pipe.hget(self._prefix + "job:" + job_id, "state")
        found = cast(list[bytes | None], pipe.execute()) if job_ids else []
        return [(state or b"").decode() for state in found]

    def drop(self, job_ids: Sequence[str]) -> None:
        """Keep nothing of jobs that have ended."""
        pipe = self._redis.pipeline(transaction=False)
        for job_id in job_ids:
            pipe.delete(self._prefix + "job:" + job_id, self._prefix + "out:" + job_id)
        pipe.execute()

    def snapshot(self) -> Snapshot:
        """Queue bounds in use and live workers. Costs one round trip, and one more for the workers."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.hgetall(self._prefix + "counters")
        pipe.hget(self._prefix + "drain", "rate")
        pipe.time()
        pipe.zrange(self._prefix + "workers", 0, -1, withscores=True)
        counters, rate, (seconds, micros), leases = pipe.execute()
        now_ms = seconds * 1000 + micros / 1000
        live = [name.decode() for name, deadline in leases if deadline > now_ms]
        return Snapshot(
            depth={c: int(counters.get(b"depth:%d" % c, 0)) for c in JobClass},
            tokens={c: int(counters.get(b"tokens:%d" % c, 0)) for c in JobClass},
            num_running=int(counters.get(b"running", 0)),
            drain_rate=float(rate or 0),
            workers=self._describe_workers(live),
        )

    def _describe_workers(self, names: list[str]) -> list[WorkerInfo]:
        pipe = self._redis.pipeline(transaction=False)
        for name in names:
            pipe.hgetall(self._prefix + "worker:" + name)
        found: list[dict[bytes, bytes]] = pipe.execute() if names else []
        # Its lease may have ended between the two round trips.
        return [
            WorkerInfo(
                name=name,
                pool_tokens=int(info[b"pool_tokens"]),
                page_size=int(info[b"page_size"]),
                max_context=int(info[b"max_context"]),
                fingerprint=info[b"fingerprint"].decode(),
                step_age_s=float(info[b"step_age_s"]),
                is_draining=info[b"is_draining"] == b"1",
            )
            for name, info in zip(names, found, strict=True)
            if b"pool_tokens" in info
        ]

    def wait_durable(self) -> bool:
        """Until all that was written is on the broker's disk; see there."""
        return wait_durable(self._redis, self._prefix)

    def rebuild(self) -> dict[str, int]:
        """Count everything again from the jobs alone. Holds the broker up for about 60 microseconds a job."""
        pattern, skip = self._prefix + "job:*", len(self._prefix + "job:")
        found: Any = self._redis.scan_iter(match=pattern, count=_SCAN_COUNT)
        ids = [key.decode()[skip:] for key in found]
        counted = self._scripts.run("rebuild", *ids)
        return dict(zip(("waiting", "running", "requeued"), map(int, counted), strict=True))
