"""Drives an engine in process as the worker's loop does."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ops.bench.answer import Answer
from ops.bench.workload import Question
from worker.engine.engine import Engine, JobOutput
from worker.protocol.job import Job, SamplingParams


@dataclass
class _Running:
    began_s: float
    num_prompt_tokens: int
    times_s: list[float]
    num_output_tokens: int = 0


class EngineDriver:
    """Feeds it chats and takes their answers."""

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
