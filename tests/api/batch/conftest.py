"""A batch's life step by step, on the session's broker: a driver that tests call, an engine that answers at once."""

import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import redis

from api.batch.desk import Desk
from api.batch.drive import Driver
from api.batch.files import FileRecord, mint_file_id
from api.batch.records import Batch, Order, mint_batch_id
from api.batch.settings import BatchSettings
from api.batch.sweep import Sweep
from api.pipeline.served_model import ServedModel, load_served_model
from api.services import build_services
from api.settings import ApiSettings
from worker.protocol.connection import connect
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import JobClass
from worker.protocol.worker_lease import ClaimedJob, Room, Row, WorkerLease

LEASE_MS = 60_000
INFO: dict[str, str | int | float] = {
    "pool_tokens": 10**6, "page_size": 1, "max_context": 2048, "fingerprint": "f", "step_age_s": 0.0, "is_draining": 0,
}  # fmt: skip
COMPLETIONS = "/v1/completions"
MODEL = "smollm2-135m"
TENANT = "alice"
_numbers = itertools.count()

Json = dict[str, Any]


class InstantEngine:
    """A worker whose answer to a prompt is the prompt."""

    def __init__(self, lease: WorkerLease, model: ServedModel) -> None:
        self._lease = lease
        self._model = model
        self._claims = itertools.count(1)

    def sign_on(self) -> None:
        self._lease.renew([], 0, INFO)

    def serve(self, max_jobs: int = 10_000) -> list[str]:
        """Answer what waits; the ids of the jobs in the order in which they were claimed."""
        self.sign_on()
        served: list[str] = []
        while len(served) < max_jobs:
            claimed = self.claim(max_jobs - len(served))
            if not claimed:
                break
            for job in claimed:
                self.answer(job)
                served.append(job.job.id)
        return served

    def claim(self, max_jobs: int) -> list[ClaimedJob]:
        rooms = {JobClass.INTERACTIVE: Room(0, 0), JobClass.BATCH: Room(10**6, min(max_jobs, 64))}
        return self._lease.claim(next(self._claims), rooms, page_size=1, fingerprint="f")

    def answer(self, claimed: ClaimedJob) -> None:
        prompt = claimed.job.prompts[0]
        text = self._model.tokenizer.decode(prompt)
        self._end(claimed, Delta(0, prompt, text, "stop"), Terminal("succeeded", "", "", len(prompt), len(prompt), 1))

    def fail(self, claimed: ClaimedJob, code: str) -> None:
        self._end(claimed, Terminal("failed", code, "The worker said so."))

    def _end(self, claimed: ClaimedJob, *events: Delta | Terminal) -> None:
        rows = [Row(claimed.job.id, claimed.fence, seq, event) for seq, event in enumerate(events, start=1)]
        self._lease.publish_step(rows)


@dataclasses.dataclass(frozen=True)
class Workbench:
    client: redis.Redis
    desk: Desk
    model: ServedModel
    files_folder: Path

    @cached_property
    def driver(self) -> Driver:
        return Driver(self.desk)

    @cached_property
    def sweep(self) -> Sweep:
        return Sweep(self.desk)

    @cached_property
    def engine(self) -> InstantEngine:
        engine = InstantEngine(WorkerLease(self.client, self.model.name, "engine", LEASE_MS), self.model)
        engine.sign_on()
        return engine

    def upload(self, data: bytes) -> str:
        file = FileRecord(mint_file_id(), TENANT, "in.jsonl", "batch", len(data), 1)
        with self.desk.storage.write(file.id) as writing:
            writing.write(data)
        self.desk.files.add(file)
        return file.id

    def order(self, data: bytes, endpoint: str = COMPLETIONS, window_s: int = 3600, **more: Any) -> str:
        """Upload a file and create a batch of it."""
        order = Order(mint_batch_id(), TENANT, endpoint, self.upload(data), "1h", window_s, **more)
        self.desk.store.create(order)
        return order.id

    def load(self, batch_id: str) -> Batch:
        batch = self.desk.store.load(batch_id)
        assert batch is not None
        return batch

    def step(self, batch_id: str, num_steps: int = 1) -> Batch:
        for _ in range(num_steps):
            self.driver.step(batch_id)
        return self.load(batch_id)

    def finish(self, batch_id: str) -> Batch:
        """Drive and serve until the batch has ended."""
        for _ in range(1000):
            while self.driver.step(batch_id):
                pass
            if self.load(batch_id).has_ended:
                return self.load(batch_id)
            self.engine.serve()
        raise AssertionError("the batch does not end")

    def rows(self, batch: Batch, kind: str) -> list[Json]:
        """Of the output or the error file."""
        file_id = batch.files.get(f"{kind}_file_id")
        if file_id is None:
            return []
        with self.desk.storage.open(file_id) as file:
            return [json.loads(row) for row in file.read().splitlines()]

    def stored_parts(self) -> list[Path]:
        return [path for path in self.files_folder.rglob("batch_*/*") if path.is_file()]


@pytest.fixture(scope="session")
def loaded_model(smollm2_folder: Path) -> ServedModel:
    return load_served_model(ApiSettings(model=str(smollm2_folder), model_name=MODEL))


@pytest.fixture
def new_bench(broker_url: str, loaded_model: ServedModel, tmp_path: Path) -> Callable[..., Workbench]:
    def make(batch: BatchSettings | None = None, **settings: Any) -> Workbench:
        pool = f"batch-{os.getpid()}-{next(_numbers)}"
        folder = tmp_path / pool
        model = dataclasses.replace(loaded_model, name=pool, aliases=(MODEL,))
        api = ApiSettings(**{"redis_url": broker_url, "storage": str(folder), **settings})
        return Workbench(connect(broker_url), Desk(build_services(api, model), batch or BatchSettings()), model, folder)

    return make


@pytest.fixture
def bench(new_bench: Callable[..., Workbench]) -> Workbench:
    return new_bench()


def line(custom_id: Any, prompt: Any = "Hello", url: str = COMPLETIONS, **body: Any) -> Json:
    return {
        "custom_id": custom_id, "method": "POST", "url": url, "body": {"model": MODEL, "prompt": prompt, **body},
    }  # fmt: skip


def jsonl(lines: Iterable[Json]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def texts_by_id(rows: Iterable[Json]) -> dict[str, str]:
    return {row["custom_id"]: row["response"]["body"]["choices"][0]["text"] for row in rows}
