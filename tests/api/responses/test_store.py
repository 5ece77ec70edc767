"""Given a small memory for stored responses, the oldest make room, and what is counted is what is there."""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from api.errors import ApiError
from api.responses.store import ResponseStore, StoredResponse
from api.stream_view import StreamView
from tests.processes import wait_until
from tests.worker.protocol.conftest import rooms
from worker.protocol import keys
from worker.protocol.connection import connect
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import Job, SamplingParams
from worker.protocol.queue import Bounds, JobQueue, Keeping
from worker.protocol.worker_lease import Row, WorkerLease

MAX_BYTES = 40_000  # 20 000 for one tenant: three records of RECORD characters
RECORD, ENTRY_BYTES, HOUR_S = 5_000, 512, 3600.0
ROOMY = Bounds(max_depth=1000, max_tokens=10**9, max_tenant_tokens=10**9, max_wait_ms=10**9)
_numbers = itertools.count()


class Shelf:
    """A pool's store beside its queue, and what its ledger says."""

    def __init__(self, client: redis.Redis) -> None:
        self.pool = f"shelf-{os.getpid()}-{next(_numbers)}"
        self.redis = client
        self.prefix = keys.prefix(self.pool)
        self.queue = JobQueue(client, self.pool)
        self.store = self.with_ttl(HOUR_S)

    def with_ttl(self, ttl_s: float) -> ResponseStore:
        return ResponseStore(self.redis, self.pool, ttl_s, MAX_BYTES)

    def save(self, response_id: str, tenant: str = "t", size: int = RECORD, **more: Any) -> None:
        """Its items are as large as said."""
        view = StreamView("responses", "m", 0, kept_ms=more.pop("kept_ms", 0))
        stored = StoredResponse(tenant, view, ({"text": "x" * size},), **more)
        self.store.save(response_id, stored, timeout_ms=0)

    def kept(self) -> list[str]:
        return sorted(self.store.load(f"r{i}" for i in range(10)))

    def admit(self, response_id: str, tenant: str = "t") -> None:
        sampling = SamplingParams(max_tokens=8, seed=1)
        job = Job(id=response_id, pool=self.pool, tenant=tenant, prompts=((1,),), sampling=sampling, timeout_ms=600_000)
        self.queue.admit(job, ROOMY, Keeping(watch_ms=0, retention_ms=60_000, client_state="v" * 100))

    def end(self, response_id: str, text: str) -> None:
        """As a worker does that answers with this text."""
        worker = WorkerLease(self.redis, self.pool, "w", 60_000)
        worker.renew([], 0, {"max_context": 500})
        claimed = worker.claim(next(_numbers), rooms(500, 9), page_size=1, fingerprint="f")
        fence = next(each.fence for each in claimed if each.job.id == response_id)
        worker.publish_step(
            [Row(response_id, fence, 1, Delta(0, (1,), text)), Row(response_id, fence, 2, Terminal("succeeded"))]
        )

    def check(self) -> None:
        """What is counted for each tenant is what lies in Redis, and nothing else is noted."""
        entries = self._hash("entries")
        sums: dict[str, int] = {}
        for response_id, entry in entries.items():
            counted, tenant = entry.split(" ", 1)
            names = [f"response:{response_id}"]
            if self.redis.hexists(self.prefix + names[0], "has_job"):
                names += [f"job:{response_id}", f"out:{response_id}"]
            found = sum(self.redis.memory_usage(self.prefix + name, samples=0) or 0 for name in names)
            if self.redis.hget(f"{self.prefix}job:{response_id}", "state") not in (b"queued", b"running"):
                assert int(counted) == ENTRY_BYTES + found
            sums[tenant] = sums.get(tenant, 0) + int(counted)
        assert {tenant: int(counted) for tenant, counted in self._hash("bytes").items()} == sums
        assert self.redis.zcard(f"{self.prefix}stored:ends") == len(entries)
        assert sum(self.redis.zcard(f"{self.prefix}stored:of:{tenant}") for tenant in sums) == len(entries)
        responses = self.redis.keys(self.prefix.replace("{", "[{]").replace("}", "[}]") + "response:*")
        assert len(responses) == len(entries)

    def _hash(self, name: str) -> dict[str, str]:
        found: Any = self.redis.hgetall(f"{self.prefix}stored:{name}")
        return {key.decode(): value.decode() for key, value in found.items()}


@pytest.fixture
def shelf(broker_url: str) -> Iterator[Shelf]:
    """What a test leaves there is counted rightly."""
    made = Shelf(connect(broker_url))
    yield made
    made.check()


def refused(call: Callable[[], None]) -> tuple[int, str | None, str | None]:
    with pytest.raises(ApiError) as raised:
        call()
    return raised.value.status, raised.value.param, raised.value.code


def test_the_oldest_of_a_tenant_make_room_for_its_new_ones(shelf: Shelf) -> None:
    shelf.save("r9", "other")
    for i in range(5):
        shelf.save(f"r{i}")
        time.sleep(0.002)  # their order is told by the millisecond
    assert shelf.kept() == ["r2", "r3", "r4", "r9"]


def test_when_all_is_taken_the_tenant_that_has_most_gives_way(shelf: Shelf) -> None:
    for i in range(8):
        shelf.save(f"r{i}", "ab"[i > 2] if i < 6 else "c")
        time.sleep(0.002)
    assert shelf.kept() == ["r1", "r2", "r4", "r5", "r6", "r7"]


def test_what_alone_is_too_large_is_refused_and_nothing_else_goes(shelf: Shelf) -> None:
    shelf.save("r0")
    too_large = (400, "store", "response_too_large")
    assert refused(lambda: shelf.save("r1", size=MAX_BYTES // 2)) == too_large
    view = StreamView("responses", "m", 0)
    stored = StoredResponse("t", view, ({"text": "x" * MAX_BYTES},))
    assert refused(lambda: shelf.store.check_size(stored)) == too_large
    assert shelf.kept() == ["r0"]


def test_what_runs_is_not_given_up_for_others(shelf: Shelf) -> None:
    for i in range(3):
        shelf.admit(f"r{i}")
        shelf.save(f"r{i}", kept_ms=1, size=4_000)
    status, _, _ = refused(lambda: shelf.save("r3", size=RECORD))
    assert (status, shelf.kept()) == (503, ["r0", "r1", "r2"])
    shelf.queue.cancel("r1", "c", "m")
    shelf.save("r3")
    assert shelf.kept() == ["r0", "r2", "r3"]


def test_an_answer_makes_room_for_itself(shelf: Shelf) -> None:
    for i in range(3):
        shelf.save(f"r{i}")
        time.sleep(0.002)
    shelf.store.keep_answer("r0", {"output": "y" * RECORD})
    shelf.check()
    shelf.store.keep_answer("r0", {"output": "z" * RECORD})
    assert shelf.kept() == ["r0", "r2"]
    assert shelf.store.load(["r0"])["r0"].answer == {"output": "z" * RECORD}


def test_the_events_of_a_background_response_count_from_the_end_of_its_job(shelf: Shelf) -> None:
    for i in (1, 2):
        shelf.save(f"r{i}")
        time.sleep(0.002)
    shelf.admit("r0")
    shelf.save("r0", kept_ms=1)
    shelf.end("r0", "e" * 3_000)
    shelf.check()
    assert shelf.kept() == ["r0", "r2"]
    out = f"{shelf.prefix}out:r0"
    assert shelf.redis.pexpiretime(out) == shelf.redis.pexpiretime(f"{shelf.prefix}response:r0")
    for i in (3, 4, 5):
        shelf.save(f"r{i}")
    assert "r0" not in shelf.kept()
    assert shelf.redis.exists(out, f"{shelf.prefix}job:r0") == 0


def test_a_job_that_ends_before_its_response_is_saved_counts(shelf: Shelf) -> None:
    shelf.admit("r0")
    shelf.end("r0", "e" * 500)
    shelf.save("r0", kept_ms=1)


def test_what_expires_or_is_deleted_counts_no_more(shelf: Shelf) -> None:
    shelf.store = shelf.with_ttl(0.05)
    shelf.save("r0", "a")
    shelf.save("r1")
    shelf.store = shelf.with_ttl(HOUR_S)
    shelf.save("r2")
    shelf.save("r3", ancestors=("r2",))
    wait_until(lambda: shelf.kept() == ["r2", "r3"], "two are gone")
    shelf.store.delete("r2")
    shelf.store.delete("r2")
    shelf.store.keep_answer("r2", {"late": True})
    shelf.save("r4", "b")
    assert shelf.kept() == ["r3", "r4"]


def test_what_someone_else_removed_is_counted_until_its_time_and_no_longer(shelf: Shelf) -> None:
    shelf.store = shelf.with_ttl(0.2)
    shelf.save("r0")
    shelf.redis.delete(f"{shelf.prefix}response:r0")
    shelf.store.keep_answer("r0", {"late": True})
    shelf.store = shelf.with_ttl(HOUR_S)

    def is_forgotten() -> bool:
        shelf.save("r1", "other")
        return shelf.redis.hget(f"{shelf.prefix}stored:bytes", "t") is None

    wait_until(is_forgotten, "the ledger has dropped it")


def test_a_repeat_after_a_lost_reply_counts_once(shelf: Shelf) -> None:
    shelf.save("r0")
    shelf.save("r0")
    assert shelf.kept() == ["r0"]


def test_a_descendant_keeps_its_ancestors_with_all_that_belongs_to_them(shelf: Shelf) -> None:
    shelf.store = shelf.with_ttl(60)
    shelf.admit("r0")
    shelf.save("r0", kept_ms=1)
    shelf.end("r0", "e")
    shelf.store = shelf.with_ttl(HOUR_S)
    shelf.save("r1", ancestors=("r0",))
    times = {shelf.redis.pexpiretime(f"{shelf.prefix}{name}:r0") for name in ("response", "job", "out")}
    assert times == {shelf.redis.pexpiretime(f"{shelf.prefix}response:r1")}
