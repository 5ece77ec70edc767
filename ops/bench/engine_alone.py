"""``python -m ops.bench.engine_alone``: the engine in process, without queue, API or HTTP, or in turns with a server.

Takes a Task as JSON on standard input and the worker's settings from the environment; prints a Report as JSON.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from transformers import AutoTokenizer

from ops.bench.answer import Answer, read_answer
from ops.bench.engine_driver import EngineDriver
from ops.bench.engine_task import IN_TURNS, Report, Step, Task
from ops.bench.load_generator import drive
from ops.bench.machine import foreign_share, usage
from ops.bench.measurement import Measurement
from ops.bench.prompts import make_prompts
from ops.bench.server import Launch, request_of
from ops.bench.workload import Question, Workload, selected
from worker.engine.engine import Engine
from worker.engine.startup import load_engine
from worker.protocol.configuration import read_settings
from worker.settings import WorkerSettings

_MORE_TOKENS = 512  # than the steps that are timed: sequences go on while the prompts of later ones are computed


def _run(task: Task) -> Report:
    engine = load_engine(read_settings(WorkerSettings), task.folder)
    driver = EngineDriver(engine, AutoTokenizer.from_pretrained(task.folder))
    list(driver.closed_loop([Question("Warm up.", 4)], 1))
    workloads = selected(task.workloads, is_quick=task.is_quick)
    # Of one seed longer prompts would begin as the shorter ones did, and be found in the prefix cache.
    seeded = [(workload, task.seed + place) for place, workload in enumerate(workloads, 1)]
    if task.port:
        return Report([one for workload, seed in seeded for one in _in_turns(driver, task, workload, seed)], [])
    measurements = [_measure(driver, task, workload, seed) for workload, seed in seeded]
    return Report(measurements, list(_steps(driver, task)))


def _measure(driver: EngineDriver, task: Task, workload: Workload, seed: int) -> Measurement:
    before, began_s = usage(task.pid), time.perf_counter()
    answers = list(driver.closed_loop(workload.questions(seed), workload.concurrency))
    wall_s = time.perf_counter() - began_s
    return _measurement(task, task.engine, workload, wall_s, answers, foreign_share(before, usage(task.pid)))


def _in_turns(driver: EngineDriver, task: Task, workload: Workload, seed: int) -> Iterator[Measurement]:
    """The server and the engine, each request at the one and then at the other."""
    launch, before = Launch(IN_TURNS, [], task.port, task.model), usage(task.pid)
    served, alone = list[Answer](), list[Answer]()
    served_s = alone_s = 0.0
    for question in workload.questions(seed):
        exchanges, wall_s = drive(task.port, [request_of(launch, question)], 1)
        served.append(read_answer(exchanges[0]))
        served_s += wall_s
        began_s = time.perf_counter()
        alone += driver.closed_loop([question], 1)
        alone_s += time.perf_counter() - began_s
    share = foreign_share(before, usage(task.pid))
    yield _measurement(task, IN_TURNS, workload, served_s, served, share)
    yield _measurement(task, task.engine, workload, alone_s, alone, share)


def _measurement(
    task: Task, server: str, workload: Workload, wall_s: float, answers: list[Answer], share: float
) -> Measurement:
    return Measurement(
        model=task.model,
        server=server,
        workload=workload.name,
        concurrency=workload.concurrency,
        wall_s=wall_s,
        answers=answers,
        foreign_share=share,
    )


def _steps(driver: EngineDriver, task: Task) -> Iterator[Step]:
    """Steps in which all sequences, past their prompts, get one token each.

    The largest batch comes first and sequences leave until the next size is reached, so that each prompt is computed
    only once.
    """
    engine = driver.engine
    texts = make_prompts(max(task.batches), task.context, 0, task.seed)
    prompts = [driver.tokenize(text)[: task.context - task.num_steps] for text in texts]
    lengths = {driver.add(prompt, task.context + _MORE_TOKENS): len(prompt) for prompt in prompts}
    waiting = set(lengths)
    while waiting:
        waiting -= _step(engine, lengths)
    forwards_s = _timed_forward(engine)
    for batch in sorted(task.batches, reverse=True):
        while len(lengths) > batch:
            engine.cancel(lengths.popitem()[0])
        yield _timed_steps(engine, task, lengths, forwards_s)
    for job_id in lengths:
        engine.cancel(job_id)


def _timed_steps(engine: Engine, task: Task, lengths: dict[str, int], forwards_s: list[float]) -> Step:
    forwards_s.clear()
    steps_s, contexts = [], []
    for _ in range(task.num_steps):
        contexts.append(statistics.fmean(lengths.values()))
        began_s = time.perf_counter()
        _step(engine, lengths)
        steps_s.append(time.perf_counter() - began_s)
    bookkeeping_s = [step_s - forward_s for step_s, forward_s in zip(steps_s, forwards_s, strict=True)]
    return Step(
        model=task.model,
        engine=task.engine,
        batch=len(lengths),
        context=statistics.fmean(contexts),
        step_s=statistics.median(steps_s),
        bookkeeping_s=statistics.median(bookkeeping_s),
    )


def _step(engine: Engine, lengths: dict[str, int]) -> set[str]:
    """One step; the jobs that got a token, whose lengths are brought up to date."""
    outputs = engine.step()
    for output in outputs:
        lengths[output.job_id] += sum(len(delta.token_ids) for delta in output.deltas)
    return {output.job_id for output in outputs if output.deltas}


def _timed_forward(engine: Engine) -> list[float]:
    """Seconds of each forward pass from now on. There is no public place for a stop watch between step and model."""
    model: Any = engine._model
    forward = type(model).forward.__get__(model)
    seconds: list[float] = []

    def timed(*arguments: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return forward(*arguments)
        finally:
            seconds.append(time.perf_counter() - began_s)

    model.forward = timed
    return seconds


if __name__ == "__main__":
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    sys.stdout.buffer.write(msgspec.json.encode(_run(task)))
