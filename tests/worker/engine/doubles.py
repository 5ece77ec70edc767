"""Doubles for the engine's tests: a model without tensors' arithmetic, and text without a tokenizer."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from worker.engine.engine import Engine, EngineConfig, JobOutput
from worker.engine.grammar import MakeGrammar
from worker.engine.ragged_batch import RaggedBatch
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import Job, JobClass, SamplingParams

VOCAB_SIZE = 50
END_TOKEN = 0

_ids = itertools.count()


def next_token(token_ids: Sequence[int]) -> int:
    """What the fake model says after these tokens: any change of any of them changes it."""
    digest = hashlib.blake2b(repr(list(token_ids)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % VOCAB_SIZE


class FakeModel:
    """Stores token ids in the KV slots and predicts from what it finds there, so a wrong page gives a wrong answer."""

    vocab_size = VOCAB_SIZE
    device = torch.device("cpu")

    def __init__(self, num_pages: int, page_size: int) -> None:
        self._num_pages = num_pages
        self.slots: list[int | None] = [None] * (num_pages * page_size)
        self.batches: list[RaggedBatch] = []
        self.scrubbed: list[int] = []
        self.failure: Exception | None = None  # raised by every forward pass
        self.logits_after: Callable[[list[int]], torch.Tensor] = lambda token_ids: one_hot(next_token(token_ids))

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        self.batches.append(batch)
        if self.failure is not None:
            raise self.failure
        for slot, token_id in zip(batch.slots.tolist(), batch.token_ids.tolist(), strict=True):
            self.slots[slot] = token_id
        rows = [self._logits(batch, row) for row in batch.logit_rows.tolist()]
        return torch.stack(rows) if rows else torch.empty(0, VOCAB_SIZE)

    def scrub(self, pages: Sequence[int]) -> None:
        self.scrubbed.extend(pages)
        size = len(self.slots) // self._num_pages
        for page in pages:
            self.slots[page * size : (page + 1) * size] = [None] * size

    def _logits(self, batch: RaggedBatch, row: int) -> torch.Tensor:
        index = next(i for i, stop in enumerate(batch.query_offsets[1:]) if row < stop)
        size = batch.page_size
        places = range(int(batch.positions[row]) + 1)
        pages = batch.page_table[index].tolist()
        held = [self.slots[pages[place // size] * size + place % size] for place in places]
        assert None not in held, "a slot was read before it was written"
        return self.logits_after([token_id for token_id in held if token_id is not None])


def one_hot(token_id: int) -> torch.Tensor:
    logits = torch.zeros(VOCAB_SIZE)
    logits[token_id] = 10.0
    return logits


class LetterDetokenizer:
    """One letter a token, so that text can be read off the ids."""

    def feed(self, token_id: int) -> str:
        return letter(token_id)

    def flush(self) -> str:
        return ""

    def token_bytes(self, token_id: int) -> bytes:
        return letter(token_id).encode()


def letter(token_id: int) -> str:
    return chr(ord("A") + token_id)


def make_engine(
    num_pages: int = 64,
    page_size: int = 4,
    max_sequences: int = 8,
    step_tokens: int = 32,
    max_context: int = 128,
    end_token_ids: frozenset[int] = frozenset({END_TOKEN}),
    **changes: Any,
) -> tuple[Engine, FakeModel]:
    """`changes` are fields of the EngineConfig, or `make_grammar`."""
    make_grammar: MakeGrammar | None = changes.pop("make_grammar", None)
    model = FakeModel(num_pages, page_size)
    config = EngineConfig(page_size, num_pages, max_sequences, step_tokens, max_context, end_token_ids, **changes)
    return Engine(model, LetterDetokenizer, config, make_grammar=make_grammar), model


def make_job(
    *prompts: Sequence[int],
    max_tokens: int = 8,
    stop: tuple[str, ...] = (),
    job_class: JobClass = JobClass.INTERACTIVE,
    job_fields: dict[str, Any] | None = None,
    **sampling: Any,
) -> Job:
    """A greedy job for these prompts. `job_fields` are those of Job itself."""
    params = SamplingParams(**{"max_tokens": max_tokens, "seed": 1, "stop": stop, "temperature": 0.0, **sampling})
    fields: dict[str, Any] = {"id": f"job-{next(_ids)}", "pool": "pool", "tenant": "tenant", "job_class": job_class}
    prompt_ids = tuple(tuple(prompt) for prompt in prompts)
    return Job(prompts=prompt_ids, sampling=params, **{**fields, **(job_fields or {})})


def expected_answer(job: Job, choice: int = 0, max_context: int = 128) -> list[int]:
    """The fake model's greedy answer, worked out without an engine."""
    token_ids = list(job.prompts[choice // job.n])
    num_prompt = len(token_ids)
    while len(token_ids) - num_prompt < job.sampling.max_tokens and len(token_ids) < max_context:
        token_ids.append(next_token(token_ids))
        if token_ids[-1] == END_TOKEN:
            break
    return token_ids[num_prompt:]


class Collected:
    """What an engine said, by job."""

    def __init__(self) -> None:
        self.deltas: dict[str, list[Delta]] = {}
        self.terminals: dict[str, Terminal] = {}

    def take(self, outputs: Iterable[JobOutput]) -> None:
        for output in outputs:
            assert output.job_id not in self.terminals, "something was said after the terminal"
            self.deltas.setdefault(output.job_id, []).extend(output.deltas)
            if output.terminal is not None:
                self.terminals[output.job_id] = output.terminal

    def token_ids(self, job: Job, choice: int = 0) -> list[int]:
        return [id for delta in self.deltas.get(job.id, ()) if delta.choice == choice for id in delta.token_ids]

    def text(self, job: Job, choice: int = 0) -> str:
        return "".join(delta.text for delta in self.deltas.get(job.id, ()) if delta.choice == choice)

    def finish(self, job: Job, choice: int = 0) -> str | None:
        finishes = [delta.finish for delta in self.deltas[job.id] if delta.choice == choice]
        assert finishes[:-1] == [None] * (len(finishes) - 1), "a choice went on after its end"
        return finishes[-1]


def run(engine: Engine, collected: Collected | None = None) -> Collected:
    """Steps the engine until it holds nothing, checking that no page goes astray."""
    collected = collected or Collected()
    while engine.has_work:
        collected.take(engine.step())
        engine.check_conservation()
    stats = engine.stats()
    assert stats.num_free_pages + stats.num_cached_pages == engine.num_pages
    return collected


def text_of(token_ids: list[int]) -> str:
    return "".join(letter(token_id) for token_id in token_ids if token_id != END_TOKEN)


def long_prompt(job_of_length: int, start: int = 1) -> list[int]:
    return [1 + (start + i) % (VOCAB_SIZE - 2) for i in range(job_of_length)]


def endless(*prompts: list[int], **changes: Any) -> Job:
    """A job whose first 20 tokens bring no end token."""
    for shift in range(50):
        shifted = [[1 + (token_id + shift) % (VOCAB_SIZE - 2) for token_id in prompt] for prompt in prompts]
        job = make_job(*shifted, **{"max_tokens": 20, **changes})
        if all(END_TOKEN not in expected_answer(job, choice) for choice in range(len(prompts))):
            return job
    raise AssertionError("no such prompt")
