"""A driver that dies anywhere, before or after any word to Redis or the storage, loses no line and doubles none."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from api.batch.drive import Driver
from api.batch.settings import BatchSettings
from api.batch.storage import Writing
from api.batch.sweep import Sweep
from tests.api.batch.conftest import Workbench, jsonl, line, texts_by_id

NUM_LINES = 150


class Died(BaseException):
    """Not an Exception: nothing may answer it, as nothing answers a kill."""


class Fate:
    """Ends whoever does one of the words it was told of, the n-th from now on."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._left = 0
        self.num_deaths = 0

    def struck(self, word: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left != 0:
                return word(*args, **more)
            self.num_deaths += 1
            if self._random.random() < 0.5:
                word(*args, **more)
            raise Died

        return do

    @contextmanager
    def strikes(self) -> Iterator[None]:
        self._left = self._random.randint(1, 40)
        try:
            yield
        except Died:
            pass
        finally:
            self._left = 0


@pytest.mark.parametrize("cause", ["", "cancelled"])
def test_given_drivers_that_die_again_and_again_then_every_line_has_one_row(
    new_bench: Callable[..., Workbench], monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    bench, fate = new_bench(BatchSettings(in_flight=12)), Fate(seed=5)
    for room in ("drive", "collection"):
        monkeypatch.setattr(f"api.batch.{room}.NUM_A_STEP", 8)
    monkeypatch.setattr(redis.Redis, "execute_command", fate.struck(redis.Redis.execute_command))
    monkeypatch.setattr(redis.client.Pipeline, "execute", fate.struck(redis.client.Pipeline.execute))
    monkeypatch.setattr(Writing, "commit", fate.struck(Writing.commit))
    prompts = {f"{i}": f"prompt {i}" for i in range(NUM_LINES)}
    bad = [line("0", "double"), line("x", url="/v1/nowhere"), line("y", model="other")]
    batch_id = bench.order(jsonl([line(name, prompt) for name, prompt in prompts.items()] + bad))

    while not bench.load(batch_id).has_ended:
        driver = Driver(bench.desk)
        with fate.strikes():
            while driver.step(batch_id):
                pass
        bench.engine.serve(max_jobs=20)
        if cause and bench.load(batch_id).counts["completed"] >= 40:
            bench.desk.store.stop(batch_id, cause)
    while bench.desk.store.littered():
        with fate.strikes():
            Sweep(bench.desk).tidy(batch_id)

    assert fate.num_deaths >= 4
    batch = bench.load(batch_id)
    assert batch.status == (cause or "completed")
    done, failed = bench.rows(batch, "output"), bench.rows(batch, "error")
    assert sorted(row["custom_id"] for row in (*done, *failed)) == sorted([*prompts, "0", "x", "y"])
    assert texts_by_id(done).items() <= prompts.items()
    assert batch.counts == {"total": NUM_LINES + 3, "completed": len(done), "failed": len(failed)}
    assert cause or len(done) == NUM_LINES
    assert bench.stored_parts() == []
