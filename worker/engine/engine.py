"""The engine: jobs in, deltas out, one step at a time."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from worker.engine.answer_text import AnswerText
from worker.engine.backfill import Backfill
from worker.engine.detokenizer import Detokenizer
from worker.engine.draw import Draw, SamplingFailed
from worker.engine.grammar import GrammarRoom, MakeGrammar
from worker.engine.held_job import HeldJob
from worker.engine.job_check import JobRejected, check_job
from worker.engine.page_keeper import PageKeeper
from worker.engine.policy import make_policy
from worker.engine.prompt_logprobs import last_rows, prompt_logprobs, rows_of_spans
from worker.engine.ragged_batch import batch_of_spans
from worker.engine.room import RoomBook
from worker.engine.sampler import sample
from worker.engine.scheduler import Scheduler
from worker.engine.sequence import Sequence as EngineSequence
from worker.engine.sequence import Span, num_rows
from worker.engine.stats import EngineStats
from worker.kernels.cpu.library import Kernels
from worker.models.interface import Model
from worker.protocol.event import Delta, Terminal
from worker.protocol.job import Job, JobClass
from worker.protocol.worker_lease import Room

logger = logging.getLogger("headrace.engine")


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of an engine. `max_context` bounds prompt plus answer of one sequence, in tokens."""

    page_size: int
    num_pages: int
    max_sequences: int
    step_tokens: int
    max_context: int
    end_token_ids: frozenset[int] = frozenset()
    fingerprint: str = ""
    policy: str = "continuous"
    prefix_cache: bool = True
    backfill_slowdown: float = 0.1


@dataclass(frozen=True)
class JobOutput:
    """What one step did for one job. With a terminal the engine has let go of the job."""

    job_id: str
    deltas: tuple[Delta, ...]
    terminal: Terminal | None


class Engine:
    """Runs the sequences of all jobs it holds in one batch. Not thread-safe: one thread calls everything."""

    def __init__(
        self,
        model: Model,
        make_detokenizer: Callable[[], Detokenizer],
        config: EngineConfig,
        kernels: Kernels | None = None,
        make_grammar: MakeGrammar | None = None,
    ) -> None:
        """`kernels`: tokens are drawn with these, where the model gives its logits on the CPU.

        Without `make_grammar` jobs with a grammar fail.
        """
        self.fingerprint = config.fingerprint
        self.vocab_size = model.vocab_size
        self.page_size = config.page_size
        self.num_pages = config.num_pages
        # A sequence alone in the pool must be able to end, else it would be preempted for ever.
        self.max_context = min(config.max_context, config.num_pages * config.page_size)
        self._model = model
        self._kernels = kernels
        self._grammars = GrammarRoom(make_grammar, model.vocab_size)
        self._make_detokenizer = make_detokenizer
        self._end_token_ids = config.end_token_ids
        self._pages = PageKeeper(config.num_pages, config.page_size, config.prefix_cache)
        self._backfill = Backfill(config.backfill_slowdown)
        policy = make_policy(config.policy, config.max_sequences)
        self._scheduler = Scheduler(self._pages, config.max_sequences, config.step_tokens, policy, self._backfill)
        self._rooms = RoomBook(self._pages, self._scheduler, self._backfill)
        self._jobs: dict[str, HeldJob] = {}
        self._deltas: dict[str, list[Delta]] = {}  # of the step in progress
        self._terminals: dict[str, Terminal] = {}
        self._num_arrivals = 0
        self._num_prompt_tokens = 0
        self._num_generated_tokens = 0
        self._num_failed_jobs = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do or report anything."""
        return bool(self._jobs or self._terminals)

    @property
    def job_ids(self) -> list[str]:
        """The jobs held, in order of arrival."""
        return list(self._jobs)

    def add(self, job: Job, replay: Sequence[Delta] = ()) -> None:
        """Takes a job in. `replay`: the deltas already published for it; its sequences go on after them.

        Raises JobRejected when the job can never run, ValueError when its id is held already.
        """
        if job.id in self._jobs:
            raise ValueError(f"job {job.id} is held already")
        check_job(job, self.vocab_size, self.max_context)
        self._num_arrivals += 1
        choices = range(job.num_choices)
        sequences = [EngineSequence(job, choice, self._num_arrivals, self.max_context) for choice in choices]
        held = HeldJob(job, sequences, [self._new_text(job) for _ in choices])
        try:
            held.replay(replay)
        except ValueError as error:
            raise JobRejected(str(error)) from error
        self._jobs[job.id] = held
        if job.sampling.grammar and held.unfinished:
            self._grammars.order(job.id, job.sampling.grammar, job.num_choices)
        else:
            self._begin(held)

    def cancel(self, job_id: str) -> bool:
        """Drops the job and frees its pages at once. False when it is not held (any more)."""
        held = self._jobs.get(job_id)
        if held is not None:
            self._let_go(held)
        self._deltas.pop(job_id, None)
        return self._terminals.pop(job_id, None) is not None or held is not None

    def step(self) -> list[JobOutput]:
        """Computes one batch; what it did for each job. An exception inside ends the jobs it hit, never the engine."""
        self._take_grammars()
        spans = self._scheduler.schedule()
        if spans:
            began_s = time.perf_counter()
            try:
                self._scrub()
                drawn = self._forward_and_sample(spans)
            except Exception as error:
                logger.exception("a forward pass failed")
                self._fail_all(spans, error)
            else:
                self._backfill.times.observe(num_rows(spans), time.perf_counter() - began_s)
                self._commit(spans, drawn)
        return self._emit()

    def rooms(self) -> dict[JobClass, Room]:
        """What the engine can take in, by class; to interactive jobs, batch jobs make way."""
        return self._rooms.rooms(self._jobs.values())

    def surplus(self) -> list[str]:
        """Batch jobs that had to make way; another worker may have room for them."""
        return self._rooms.surplus(self._jobs)

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len(self._scheduler.running),
            num_waiting=len(self._scheduler.waiting),
            num_pages=self.num_pages,
            num_free_pages=self._pages.num_free,
            num_held_pages=self._pages.num_held,
            num_cached_pages=self._pages.num_cached,
            num_prompt_tokens_total=self._num_prompt_tokens,
            num_generated_tokens_total=self._num_generated_tokens,
            num_preemptions_total=self._scheduler.num_preemptions,
            num_failed_jobs_total=self._num_failed_jobs,
            num_prefix_queried_tokens_total=self._pages.num_queried_tokens,
            num_prefix_hit_tokens_total=self._pages.num_hit_tokens,
        )

    def check_conservation(self) -> None:
        """Raises AssertionError unless every page is free, cached or held by running sequences, as often as counted."""
        self._pages.check_conservation(self._scheduler.running)

    def _new_text(self, job: Job) -> AnswerText:
        return AnswerText(self._make_detokenizer(), job.sampling, self._end_token_ids)

    def _scrub(self) -> None:
        """Zeroes what a failed or half-computed sequence left behind, before another one reads around it."""
        tainted = self._pages.take_tainted()
        if tainted:
            self._model.scrub(tainted)

    def _begin(self, held: HeldJob) -> None:
        for sequence in held.unfinished:
            self._scheduler.add(sequence)
        self._end_if_finished(held)

    def _take_grammars(self) -> None:
        """Begins the jobs whose grammars are made by now."""
        is_idle = not (self._scheduler.running or self._scheduler.waiting or self._terminals)
        for job_id, made in self._grammars.made(is_idle).items():
            held = self._jobs[job_id]
            try:
                held.begin_grammars(made.result())
            except Exception as error:
                self._fail(held, error)
            else:
                self._begin(held)

    def _forward_and_sample(self, spans: list[Span]) -> dict[EngineSequence, Draw | SamplingFailed]:
        """What was drawn for the sequences that need it, but for those whose masks take longer than the step may."""
        sequences = [span.sequence for span in spans if span.needs_logits]
        ruled = {each: grammar for each in sequences if (grammar := self._jobs[each.job_id].grammar_of(each))}
        masks = self._grammars.start_masks(ruled.values()) if ruled else None
        logits = self._model.forward(batch_of_spans(spans, self.page_size, self._model.device))
        self._tell_prompts(logits, spans)
        found = {} if masks is None else masks.result()
        allowed = {each: found[grammar] for each, grammar in ruled.items() if grammar in found}
        timely = [i for i, each in enumerate(sequences) if each in allowed or each not in ruled]
        told = last_rows(logits, spans)
        if len(timely) < len(sequences):
            told, sequences = told[timely], [sequences[i] for i in timely]
        rows = [self._jobs[each.job_id].row_params(each, allowed.get(each)) for each in sequences]
        return dict(zip(sequences, sample(told, rows, self._kernels), strict=True))

    def _tell_prompts(self, logits: torch.Tensor, spans: list[Span]) -> None:
        if not any(span.sequence.wants_prompt_logits for span in spans):
            return
        for span, rows in zip(spans, rows_of_spans(logits, spans), strict=True):
            if span.sequence.wants_prompt_logits:
                held = self._jobs[span.sequence.job_id]
                told = prompt_logprobs(rows, span, held.job.sampling.prompt_logprobs or 0)
                held.tell_prompt(span.sequence, span.start + 1, told)

    def _commit(self, spans: list[Span], drawn: dict[EngineSequence, Draw | SamplingFailed]) -> None:
        for span in spans:
            draw = drawn.get(span.sequence)
            held = self._jobs.get(span.sequence.job_id)
            if held is None:  # another choice of the job has failed in this step
                continue
            if isinstance(draw, SamplingFailed):
                self._fail(held, draw)
                continue
            # Where a mask is late, the last token is computed again: its row is what to draw from.
            self._pages.accept(span.without_last() if draw is None and span.needs_logits else span)
            if draw is not None:
                self._pages.prove(span.sequence)
                self._commit_token(held, span.sequence, draw)

    def _commit_token(self, held: HeldJob, sequence: EngineSequence, draw: Draw) -> None:
        if sequence.num_generated == 0 and sequence.is_first_of_prompt:
            self._num_prompt_tokens += sequence.num_prompt_tokens
        try:
            delta = held.accept_prompt_alone(sequence) if sequence.is_at_limit else held.accept(sequence, draw)
        except Exception as error:
            logger.exception("the text of a token failed", extra={"job_id": held.job.id})
            self._fail(held, error)
            return
        self._num_generated_tokens += len(delta.token_ids)
        self._deltas.setdefault(sequence.job_id, []).append(delta)
        if sequence.is_finished:
            self._scheduler.remove(sequence)
            self._end_if_finished(held)

    def _end_if_finished(self, held: HeldJob) -> None:
        if not held.unfinished:
            self._terminals[held.job.id] = held.terminal()
            self._let_go(held)

    def _fail_all(self, spans: list[Span], error: Exception) -> None:
        for job_id in dict.fromkeys(span.sequence.job_id for span in spans):
            self._fail(self._jobs[job_id], error)

    def _fail(self, held: HeldJob, error: Exception) -> None:
        logger.error("job failed: %s: %s", type(error).__name__, error, extra={"job_id": held.job.id})
        self._num_failed_jobs += 1
        self._terminals[held.job.id] = held.terminal(failure=error)
        self._let_go(held)

    def _let_go(self, held: HeldJob) -> None:
        del self._jobs[held.job.id]
        self._grammars.forget(held.job.id)
        for sequence in held.sequences:
            self._scheduler.remove(sequence)

    def _emit(self) -> list[JobOutput]:
        job_ids = dict.fromkeys([*self._deltas, *self._terminals])
        outputs = [
            JobOutput(job_id, tuple(self._deltas.get(job_id, ())), self._terminals.get(job_id)) for job_id in job_ids
        ]
        self._deltas, self._terminals = {}, {}
        return outputs
