"""One worker under many mixed requests, some of them cancelled: what its pages and its memory look like afterwards."""

import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import psutil

from tests.processes import wait_until
from tests.stack import Stack
from worker.protocol.connection import connect
from worker.protocol.job import Job, JobClass, SamplingParams, mint_job_id
from worker.protocol.queue import Bounds, JobQueue, Keeping

# Room for a few thousand tokens: requests wait for pages, preempt each other and push each other out of the cache.
SETTINGS = {"HEADRACE_DTYPE": "auto", "HEADRACE_MAX_SEQUENCES": "48", "HEADRACE_KV_MEMORY_GIB": "0.002"}
POOL = "tiny"
VOCAB_SIZE = 49152
LOOK_EVERY_S = 0.05
SHARE_CANCELLED = 0.3
SHARE_WARM_UP = 0.4  # of the time: until then tables fill and buffers grow
TOLERATED_MIB = 16.0  # tables of tokens seen for the first time
BOUNDS = Bounds(10**4, 10**9, 10**9, 10**9)
KEEPING = Keeping(watch_ms=0, retention_ms=60_000)
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {},
    {"top_p": 0.9, "temperature": 0.7},
    {"top_k": 40, "logprobs": 5},
    {"min_p": 0.05, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    {"repetition_penalty": 1.2, "top_p": 0.95, "logprobs": 0},
    {"stop": ("e", "the"), "min_tokens": 3},
    {"logit_bias": ((11, 4.0), (12, -100.0)), "ignore_eos": True},
)


@dataclass(frozen=True)
class LoadPlan:
    seed: int
    duration_s: float
    num_requests: int = 64  # at any time


@dataclass(frozen=True)
class LoadFindings:
    """`pages` by state, at rest. `growth_mib`: of resident memory, between the end of the warm-up and the end."""

    endings: Counter[str]
    pages: dict[str, float]
    num_pages: int
    resident_mib: float
    growth_mib: float


def load(stack: Stack, plan: LoadPlan) -> LoadFindings:
    """Keep the stack's one worker busy for the plan's time, then let it come to rest."""
    queue = JobQueue(connect(stack.redis_url), POOL)
    crowd = Crowd(queue, plan)
    worker = psutil.Process(stack.workers[-1].pid)
    resident_mib: list[float] = []
    began_s = time.monotonic()
    while time.monotonic() < began_s + plan.duration_s:
        crowd.look()
        if time.monotonic() > began_s + SHARE_WARM_UP * plan.duration_s:
            resident_mib.append(worker.memory_info().rss / 2**20)
        time.sleep(LOOK_EVERY_S)
    wait_until(crowd.has_left, "the last requests to end")
    wait_until(lambda: stack.worker_pages()["held"] == 0, "all pages to be given back")
    part = len(resident_mib) // 4
    first, last = statistics.median(resident_mib[:part]), statistics.median(resident_mib[-part:])
    [info] = queue.snapshot().workers
    return LoadFindings(crowd.endings, stack.worker_pages(), info.pool_tokens // info.page_size, last, last - first)


class Crowd:
    """As many requests at any time as the plan says; some change their mind."""

    def __init__(self, queue: JobQueue, plan: LoadPlan) -> None:
        self.endings: Counter[str] = Counter()
        self._queue = queue
        self._num_requests = plan.num_requests
        self._dice = random.Random(plan.seed)
        self._beginnings = [self._tokens(200) for _ in range(4)]
        self._patience: dict[str, int] = {}  # of each running request: looks until it is cancelled

    def look(self) -> None:
        """One turn: note who has ended, cancel who has lost patience, replace them."""
        self._note_ends()
        for job_id in self._patience:
            self._patience[job_id] -= 1
            if self._patience[job_id] == 0:
                self._queue.cancel(job_id, "client_gone", "The client has left.")
        while len(self._patience) < self._num_requests:
            job = self._job()
            self._queue.admit(job, BOUNDS, KEEPING)
            is_patient = self._dice.random() > SHARE_CANCELLED
            self._patience[job.id] = -1 if is_patient else self._dice.randrange(1, 60)

    def has_left(self) -> bool:
        self._note_ends()
        return not self._patience

    def _note_ends(self) -> None:
        for job_id in list(self._patience):
            state = self._queue.describe(job_id).get("state", "forgotten")
            if state not in ("queued", "running"):
                self.endings[state] += 1
                del self._patience[job_id]

    def _job(self) -> Job:
        dice = self._dice
        beginning = dice.choice(self._beginnings)[: dice.choice([0, 64, 200])]
        prompts = tuple((*beginning, *self._tokens(dice.randrange(1, 300))) for _ in range(dice.choice([1, 1, 1, 2])))
        max_tokens = dice.randrange(1, 120)
        sampling = {"max_tokens": max_tokens, "seed": dice.randrange(2**32), **dice.choice(SAMPLINGS)}
        return Job(
            id=mint_job_id("completions", POOL), pool=POOL, tenant=dice.choice("ab"), prompts=prompts,
            sampling=SamplingParams(**sampling), job_class=dice.choice(list(JobClass)), created_s=int(time.time()),
            timeout_ms=600_000, expected_tokens=max_tokens // 2, n=dice.choice([1, 1, 3]),
        )  # fmt: skip

    def _tokens(self, number: int) -> tuple[int, ...]:
        return tuple(self._dice.randrange(3, VOCAB_SIZE) for _ in range(number))
