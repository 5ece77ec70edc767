"""The engine over the lean model in bfloat16: tokens and logprobs have the same bits, whatever happens around a job."""

import random
from pathlib import Path

import pytest
from msgspec import structs

from tests.worker.engine.doubles import Collected, LetterDetokenizer, make_job, run
from tests.worker.models.families import SIZES, VOCAB_SIZE
from tests.worker.models.lean import PAGE_SIZE, lean_decoder, model_folder
from worker.engine.engine import Engine, EngineConfig
from worker.models.decoder import LeanDecoder
from worker.protocol.event import Delta
from worker.protocol.job import Job, JobClass

NUM_TOKENS = 20
MAX_CONTEXT = 96


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> LeanDecoder:
    from transformers import LlamaConfig  # noqa: PLC0415

    from tests.worker.models.families import make_network  # noqa: PLC0415

    network = make_network(LlamaConfig(**SIZES))
    folder = model_folder(network, tmp_path_factory.mktemp("lean") / "model", smollm2_folder)
    return lean_decoder(folder, num_pages=64, dtype="bfloat16", threads=1)


def engine_over(
    model: LeanDecoder, num_pages: int = 64, step_tokens: int = 256, prefix_cache: bool = True, slowdown: float = 0.1
) -> Engine:
    """Each engine takes the model's pages over as they are: whatever it relies on it has to have written itself."""
    config = EngineConfig(
        PAGE_SIZE, num_pages, 8, step_tokens, MAX_CONTEXT, prefix_cache=prefix_cache, backfill_slowdown=slowdown
    )
    return Engine(model, LetterDetokenizer, config, model._kernels)


def jobs_that_begin_alike() -> list[Job]:
    dice = random.Random(3)
    beginnings = [[dice.randrange(3, VOCAB_SIZE) for _ in range(40)] for _ in range(2)]
    return [
        make_job(
            [*beginnings[i % 2], *(dice.randrange(3, VOCAB_SIZE) for _ in range(i))],
            max_tokens=NUM_TOKENS, temperature=0.9 * (i % 3), top_p=0.95, seed=i, logprobs=3,
            presence_penalty=0.4 * (i % 2), job_fields={"n": 1 + i % 2},
        )
        for i in range(9)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def alone(model: LeanDecoder) -> dict[str, list[Delta]]:
    """Each job's deltas, choice by choice, from an engine of its own that shares nothing."""
    collected = Collected()
    for job in jobs_that_begin_alike():
        engine = engine_over(model, prefix_cache=False)
        engine.add(job)
        run(engine, collected)
    return {str(i): by_choice(deltas) for i, deltas in enumerate(collected.deltas.values())}


def by_choice(deltas: list[Delta]) -> list[Delta]:
    return sorted(deltas, key=lambda delta: delta.choice)


def served(engine: Engine, collected: Collected | None = None) -> tuple[Collected, dict[str, list[Delta]]]:
    """All jobs through one engine, one arriving at each step."""
    collected = collected or Collected()
    jobs = jobs_that_begin_alike()
    for job in jobs:
        engine.add(job)
        collected.take(engine.step())
    run(engine, collected)
    return collected, {str(i): by_choice(collected.deltas[job.id]) for i, job in enumerate(jobs)}


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("step_tokens", [9, 256])
def test_in_a_crowd_in_chunks_with_and_without_hits(
    model: LeanDecoder, alone: dict[str, list[Delta]], prefix_cache: bool, step_tokens: int
) -> None:
    engine = engine_over(model, step_tokens=step_tokens, prefix_cache=prefix_cache)
    collected, found = served(engine)
    assert found == alone
    assert any(terminal.num_cached_tokens for terminal in collected.terminals.values()) == prefix_cache


def test_the_second_time_when_nearly_all_is_found(model: LeanDecoder, alone: dict[str, list[Delta]]) -> None:
    engine = engine_over(model)
    served(engine)
    collected, found = served(engine)
    assert found == alone
    assert all(terminal.num_cached_tokens >= 2 * PAGE_SIZE for terminal in collected.terminals.values())


def test_when_preempted(model: LeanDecoder, alone: dict[str, list[Delta]]) -> None:
    engine = engine_over(model, num_pages=11)
    _, found = served(engine)
    assert engine.stats().num_preemptions_total > 0
    assert found == alone


@pytest.mark.parametrize("slowdown", [0.0, 0.2])
def test_when_held_back_behind_interactive_work(
    model: LeanDecoder, alone: dict[str, list[Delta]], slowdown: float
) -> None:
    engine, collected = engine_over(model, num_pages=40, slowdown=slowdown), Collected()
    jobs = [structs.replace(job, job_class=JobClass.BATCH) for job in jobs_that_begin_alike()]
    for job in jobs:
        engine.add(job)
        collected.take(engine.step())
        engine.add(make_job([5, 6, 7], max_tokens=12))
        for _ in range(6):
            collected.take(engine.step())
    run(engine, collected)
    assert {str(i): by_choice(collected.deltas[job.id]) for i, job in enumerate(jobs)} == alone


def test_when_taken_over_by_another_worker(model: LeanDecoder, alone: dict[str, list[Delta]]) -> None:
    jobs = jobs_that_begin_alike()
    dead, heir, collected = engine_over(model), engine_over(model, step_tokens=11), Collected()
    for job in jobs:
        dead.add(job)
    for _ in range(12):
        collected.take(dead.step())
    for job in reversed(jobs):
        if job.id not in collected.terminals:
            heir.add(job, collected.deltas.get(job.id, []))
    run(heir, collected)
    assert {str(i): by_choice(collected.deltas[job.id]) for i, job in enumerate(jobs)} == alone
