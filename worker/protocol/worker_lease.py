"""The queue as a worker sees it: claim under a lease, renew it, publish steps, hand jobs back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import redis

from worker.protocol import keys
from worker.protocol.event import Delta, Event, Terminal, decode_event, encode_event
from worker.protocol.job import Job, JobClass, decode_job
from worker.protocol.lua import Scripts

_pack = msgspec.msgpack.encode


@dataclass(frozen=True)
class Room:
    """What a worker can take in: tokens that its free pages hold, and places."""

    num_tokens: int
    num_jobs: int


@dataclass(frozen=True)
class ClaimedJob:
    """A job this worker owns while `fence` is the job's newest, and what earlier owners already published."""

    job: Job
    fence: int
    num_attempts: int
    replay: tuple[Delta, ...]


@dataclass(frozen=True)
class Row:
    """One event of one step: the `seq`-th of its job, which only the holder of `fence` may append."""

    job_id: str
    fence: int
    seq: int
    event: Event

    @property
    def terminal_state(self) -> str:
        return self.event.state if isinstance(self.event, Terminal) else ""


@dataclass(frozen=True)
class Published:
    """Jobs the worker no longer owns, and the true lengths of lists that are shorter than it thought."""

    lost: list[str]
    short: dict[str, int]


class WorkerLease:
    """One worker's hold on a pool's queue. Not thread-safe but for what its caller serialises."""

    def __init__(self, client: redis.Redis, pool: str, name: str, lease_ms: int) -> None:
        self._redis = client
        self._prefix = keys.prefix(pool)
        self._scripts = Scripts(client, self._prefix)
        self._name = name
        self._lease_ms = lease_ms

    def claim(
        self, number: int, rooms: Mapping[JobClass, Room], *, page_size: int, fingerprint: str
    ) -> list[ClaimedJob]:
        """Jobs that fit into the room of their class; none without a lease, so renew first.

        What a class takes is no room any more for those behind it; what they take is, for it: they make way.

        The same number again returns the same jobs: a lost reply loses nothing.
        """
        request = {
            "worker": self._name, "number": number, "page_size": page_size, "fingerprint": fingerprint,
            "rooms": [(rooms[each].num_tokens, rooms[each].num_jobs) for each in JobClass],
        }  # fmt: skip
        rows = self._scripts.run("claim", _pack(request))
        return [claimed for row in rows if (claimed := self._readable(row)) is not None]

    def _readable(self, row: list[Any]) -> ClaimedJob | None:
        """A job that this version cannot read (an upgrade under way) fails alone, not the whole worker."""
        try:
            return _claimed(row)
        except msgspec.DecodeError as error:
            reason = f"This worker's version cannot read the request: {error}"
            self.finish(row[0].decode(), int(row[1]), Terminal("failed", "unreadable", reason))
            return None

    def renew(self, job_ids: Sequence[str], claim_number: int, info: dict[str, str | int | float]) -> list[str]:
        """Keep the lease and tell the queue how the worker is. Returns jobs that must be dropped."""
        flat = [text for item in info.items() for text in map(str, item)]
        request = {
            "worker": self._name, "lease_ms": self._lease_ms, "claim_number": claim_number,
            "jobs": list(job_ids), "info": flat,
        }  # fmt: skip
        return [job_id.decode() for job_id in self._scripts.run("renew", _pack(request))]

    def publish_step(self, rows: Sequence[Row]) -> Published:
        """Append and publish one step's events. A repeated call changes nothing."""
        request = {
            "worker": self._name,
            "rows": [(row.job_id, row.fence, row.seq, row.terminal_state) for row in rows],
        }
        entries = [encode_event(row.event) for row in rows]
        lost, short, lengths = self._scripts.run("publish_step", _pack(request), *entries)
        return Published(
            [job_id.decode() for job_id in lost],
            {job_id.decode(): int(length) for job_id, length in zip(short, lengths, strict=True)},
        )

    def finish(self, job_id: str, fence: int, terminal: Terminal) -> bool:
        """End a job that cannot run at all. False when this worker does not own it."""
        return bool(self._scripts.run("finish", self._name, job_id, fence, terminal.state, encode_event(terminal)))

    def requeue(self, jobs: Sequence[tuple[str, int]], *, is_leaving: bool) -> int:
        """Hand back (job id, fence) pairs; a leaving worker gives up its lease too. Returns how many went back."""
        request = {"worker": self._name, "jobs": list(jobs), "is_leaving": is_leaving}
        return int(self._scripts.run("requeue", _pack(request)))

    def wait_for_bell(self, classes: Sequence[JobClass], timeout_s: float) -> JobClass | None:
        """Sleep until a job of one of these classes is admitted, whose class it is, or the time is over (None).

        One ring wakes one worker.
        """
        rung = self._redis.blpop([f"{self._prefix}bell:{each}" for each in classes], timeout=timeout_s)
        return None if rung is None else JobClass(int(rung[1]))

    def pass_bell(self, job_class: JobClass) -> bool:
        """Ring for the others, since the job rung for is none for this worker. False when none of the class waits."""
        return bool(self._scripts.run("pass_bell", int(job_class)))


def _claimed(row: list[Any]) -> ClaimedJob:
    _job_id, fence, body, num_attempts, entries = row
    events = [decode_event(entry) for entry in entries]
    return ClaimedJob(decode_job(body), int(fence), int(num_attempts), tuple(e for e in events if isinstance(e, Delta)))
