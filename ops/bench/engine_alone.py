"""``python -m ops.bench.engine_alone``: the engine in process, without queue, API or HTTP.

Takes a Task as JSON on standard input and the worker's settings from the environment; prints a Report as JSON.
"""

import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ops.bench.answer import Answer
from ops.bench.machine import foreign_share, usage
from ops.bench.measurement import Measurement
from ops.bench.prompts import make_prompts
from ops.bench.server import own_environment
from ops.bench.workload import Question, selected
from worker.protocol.job import Job, SamplingParams

if TYPE_CHECKING:
    from worker.engine.engine import Engine

ENGINE = "engine in process"
BATCHES = (1, 8, 32)
CONTEXT = 256
NUM_STEPS = 24
_NO_PROCESS = 0


class Task(msgspec.Struct, frozen=True):
    """What to run: workloads, then `num_steps` decode steps of each batch size after prompts of `context` tokens."""

    model: str
    folder: str
    workloads: list[str]
    seed: int
    is_quick: bool
    batches: list[int]
    context: int
    num_steps: int


class Step(msgspec.Struct, frozen=True):
    """A decode step of `batch` sequences: the median, and the part of it outside the forward pass."""

    batch: int
    context: int
    step_s: float
    bookkeeping_s: float


class Report(msgspec.Struct, frozen=True):
    measurements: list[Measurement]
    steps: list[Step]


def measure_engine(task: Task, settings: Mapping[str, str]) -> Report:
    """In a process of its own, set up as a worker is."""
    environ = {**own_environment(), "OMP_WAIT_POLICY": "PASSIVE", **settings}
    command = [sys.executable, "-m", "ops.bench.engine_alone"]
    result = subprocess.run(command, input=msgspec.json.encode(task), stdout=subprocess.PIPE, env=environ, check=True)
    return msgspec.json.decode(result.stdout, type=Report)


def new_task(model: str, folder: str, workloads: Sequence[str], seed: int, *, is_quick: bool) -> Task:
    """A task of the workloads among c1 and c32 that are asked for; quick ones have short contexts and few steps."""
    names = [name for name in ("c1", "c32") if name in workloads]
    divisor = 8 if is_quick else 1
    return Task(model, folder, names, seed, is_quick, list(BATCHES), CONTEXT // divisor, NUM_STEPS // divisor)


def _run(task: Task) -> Report:
    from transformers import AutoTokenizer  # noqa: PLC0415  only in the process of its own

    from worker.engine.startup import load_engine  # noqa: PLC0415  loads torch
    from worker.protocol.configuration import read_settings  # noqa: PLC0415
    from worker.settings import WorkerSettings  # noqa: PLC0415

    engine = load_engine(read_settings(WorkerSettings), task.folder)
    tokenizer = AutoTokenizer.from_pretrained(task.folder)
    driver = _Driver(engine, tokenizer)
    list(driver.closed_loop([Question("Warm up.", 4)], 1))
    measurements = [
        _measure(driver, task.model, workload.name, workload.questions(task.seed), workload.concurrency)
        for workload in selected(task.workloads, is_quick=task.is_quick)
    ]
    return Report(measurements, [_step(driver, batch, task) for batch in task.batches])


@dataclass
class _Running:
    began_s: float
    num_prompt_tokens: int
    times_s: list[float]
    num_output_tokens: int = 0


class _Driver:
    """Feeds an engine as the worker's loop does."""

    def __init__(self, engine: "Engine", tokenizer: Any) -> None:
        self.engine = engine
        self._tokenizer = tokenizer
        self._num_jobs = 0

    def tokenize(self, text: str) -> tuple[int, ...]:
        messages = [{"role": "user", "content": text}]
        ids = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        return tuple(ids)

    def add(self, prompt: tuple[int, ...], max_tokens: int) -> str:
        self._num_jobs += 1
        sampling = SamplingParams(max_tokens=max_tokens, seed=0, temperature=0.0)
        job_id = f"job-{self._num_jobs}"
        self.engine.add(
            Job(id=job_id, pool="bench", tenant="", prompts=(prompt,), sampling=sampling, expected_tokens=max_tokens)
        )
        return job_id

    def closed_loop(self, questions: Sequence[Question], concurrency: int) -> Iterator[Answer]:
        """The answers, as they end."""
        waiting = deque((self.tokenize(question.text), question.max_tokens) for question in questions)
        running: dict[str, _Running] = {}
        while waiting or running:
            while waiting and len(running) < concurrency:
                prompt, max_tokens = waiting.popleft()
                running[self.add(prompt, max_tokens)] = _Running(time.perf_counter(), len(prompt), [])
            for output in self.engine.step():
                yield from self._note(running, output)

    def _note(self, running: dict[str, _Running], output: Any) -> Iterator[Answer]:
        one = running[output.job_id]
        one.num_output_tokens += sum(len(delta.token_ids) for delta in output.deltas)
        if any(delta.text for delta in output.deltas):
            one.times_s.append(time.perf_counter() - one.began_s)
        if output.terminal is not None:
            del running[output.job_id]
            yield Answer(
                text_times_s=one.times_s,
                num_output_tokens=one.num_output_tokens,
                num_prompt_tokens=one.num_prompt_tokens,
                is_counted=True,
                failure=output.terminal.message if output.terminal.state != "succeeded" else "",
            )


def _measure(driver: _Driver, model: str, name: str, questions: Sequence[Question], concurrency: int) -> Measurement:
    before, began_s = usage(_NO_PROCESS), time.perf_counter()
    answers = list(driver.closed_loop(questions, concurrency))
    wall_s = time.perf_counter() - began_s
    return Measurement(
        model=model,
        server=ENGINE,
        workload=name,
        concurrency=concurrency,
        wall_s=wall_s,
        answers=answers,
        foreign_share=foreign_share(before, usage(_NO_PROCESS)),
    )


def _step(driver: _Driver, batch: int, task: Task) -> Step:
    """Steps in which `batch` sequences, all past their prompts, get one token each."""
    engine = driver.engine
    texts = make_prompts(batch, task.context, 0, task.seed + batch)
    jobs = [driver.add(driver.tokenize(text)[: task.context], task.context) for text in texts]
    produced: set[str] = set()
    while len(produced) < batch:
        produced.update(output.job_id for output in engine.step() if output.deltas)
    steps_s, forwards_s = [], _timed_forward(engine)
    for _ in range(task.num_steps):
        began_s = time.perf_counter()
        engine.step()
        steps_s.append(time.perf_counter() - began_s)
    bookkeeping_s = [step_s - forward_s for step_s, forward_s in zip(steps_s, forwards_s, strict=True)]
    for job_id in jobs:
        engine.cancel(job_id)
    return Step(batch, task.context, statistics.median(steps_s), statistics.median(bookkeeping_s))


def _timed_forward(engine: "Engine") -> list[float]:
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
