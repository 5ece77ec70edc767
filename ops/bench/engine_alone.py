"""``python -m ops.bench.engine_alone``: the engine in process, without queue, API or HTTP.

Takes a Task as JSON on standard input and the worker's settings from the environment; prints a Report as JSON.
"""

import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from transformers import AutoTokenizer

from ops.bench.answer import Answer
from ops.bench.engine_task import Report, Step, Task
from ops.bench.machine import foreign_share, usage
from ops.bench.measurement import Measurement
from ops.bench.prompts import make_prompts
from ops.bench.workload import Question, Workload, selected
from worker.engine.engine import Engine, JobOutput
from worker.engine.startup import load_engine
from worker.protocol.configuration import read_settings
from worker.protocol.job import Job, SamplingParams
from worker.settings import WorkerSettings

_NO_PROCESS = 0
_MORE_TOKENS = 512  # than the steps that are timed: sequences go on while the prompts of later ones are computed


@dataclass
class _Running:
    began_s: float
    num_prompt_tokens: int
    times_s: list[float]
    num_output_tokens: int = 0


class _Driver:
    """Feeds an engine as the worker's loop does."""

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
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

    def _note(self, running: dict[str, _Running], output: JobOutput) -> Iterator[Answer]:
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


def _run(task: Task) -> Report:
    engine = load_engine(read_settings(WorkerSettings), task.folder)
    driver = _Driver(engine, AutoTokenizer.from_pretrained(task.folder))
    list(driver.closed_loop([Question("Warm up.", 4)], 1))
    workloads = selected(task.workloads, is_quick=task.is_quick)
    # Of one seed longer prompts would begin as the shorter ones did, and be found in the prefix cache.
    measurements = [_measure(driver, task, workload, task.seed + place) for place, workload in enumerate(workloads, 1)]
    return Report(measurements, list(_steps(driver, task)))


def _measure(driver: _Driver, task: Task, workload: Workload, seed: int) -> Measurement:
    before, began_s = usage(_NO_PROCESS), time.perf_counter()
    answers = list(driver.closed_loop(workload.questions(seed), workload.concurrency))
    wall_s = time.perf_counter() - began_s
    return Measurement(
        model=task.model,
        server=task.engine,
        workload=workload.name,
        concurrency=workload.concurrency,
        wall_s=wall_s,
        answers=answers,
        foreign_share=foreign_share(before, usage(_NO_PROCESS)),
    )


def _steps(driver: _Driver, task: Task) -> Iterator[Step]:
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
