"""Admission: refuse early what cannot be served, and turn the queue's verdicts into honest answers."""

import logging
import time

import redis

from api import errors
from api.errors import ApiError
from api.pipeline.rate_limits import full_queue_headers, limit_headers
from api.settings import ApiSettings
from worker.protocol.job import ENDPOINT_PREFIXES, Job, JobClass
from worker.protocol.queue import Admission, Bounds, JobQueue, Keeping, Snapshot, WorkerInfo

log = logging.getLogger("headrace.admission")

_FRESH_S = 0.25  # a snapshot this old is good enough to refuse by
_STILL_GOOD_S = 1.0  # and one this old to let pass by, which saves most requests two round trips; the script decides
_MAX_ADVICE_S = 120.0
_NO_WORKER_ADVICE_S = 5.0
_PROMPT_FIELDS = {"chat.completions": "messages", "completions": "prompt", "responses": "input", "messages": "messages"}


class AdmissionControl:
    """One per process. Both checks raise ApiError: 429 for the caller's and the queue's limits, 503 for no service."""

    def __init__(self, queue: JobQueue, settings: ApiSettings, bounds: Bounds | None = None) -> None:
        """`bounds`: others than those for live requests."""
        self._queue = queue
        self._settings = settings
        self._bounds = bounds or live_bounds(settings)
        self._snapshot: Snapshot | None = None
        self._taken_s = 0.0

    def check_cheaply(self, job_class: JobClass) -> None:
        """Before template and tokenizer cost anything: is there a worker, and room in the queue?"""
        snapshot = self.snapshot(_STILL_GOOD_S)
        try:
            self._check(snapshot, job_class)
        except ApiError:
            self._check(self.snapshot(), job_class)

    def _check(self, snapshot: Snapshot, job_class: JobClass) -> None:
        ready_workers(snapshot)
        if snapshot.depth[job_class] >= self._settings.queue_depth:
            error = errors.queue_full(self._advice_s(snapshot.tokens[job_class], snapshot.drain_rate, 1.0))
            error.headers |= full_queue_headers(self._settings, snapshot.tokens[job_class], snapshot.drain_rate)
            raise error

    def admit(self, job: Job, keeping: Keeping) -> Admission:
        """Queue the job. `job_id` of the answer differs from the job's when its idempotency key was used before."""
        workers = ready_workers(self.snapshot(_STILL_GOOD_S))
        _refuse_too_long(job, max(worker.max_context for worker in workers))
        if not any(_fits(job, worker) for worker in workers):
            raise errors.bad_request(
                f"This request needs {job.cost} tokens of memory; this server has "
                f"{max(worker.pool_tokens for worker in workers)}. Ask for fewer or shorter prompts.",
                code="request_too_large",
            )
        return self.admit_again(job, keeping)

    def admit_again(self, job: Job, keeping: Keeping) -> Admission:
        """Queue a job that was admitted before. Its worker may still be on its way back, as after a broker's loss."""
        try:
            admission = self._queue.admit(job, self._bounds, keeping)
        except redis.exceptions.OutOfMemoryError as error:
            raise errors.unavailable("The queue's memory is full. Please try again later.", 10.0) from error
        except redis.RedisError as error:
            raise broker_away(job.id, error) from error
        return self._judged(admission)

    def snapshot(self, max_age_s: float = _FRESH_S) -> Snapshot:
        """The queue as it was at most so long ago. Raises ApiError 503 when the broker is away.

        That nobody serves is looked up anew: another process may have said by now that somebody does.
        """
        now_s = time.monotonic()
        if self._snapshot is None or now_s - self._taken_s > max_age_s or not self._snapshot.workers:
            try:
                self._snapshot = self._queue.snapshot()
            except redis.RedisError as error:
                raise broker_away(None, error) from error
            self._taken_s = now_s
        return self._snapshot

    def _judged(self, admission: Admission) -> Admission:
        if admission.verdict in ("admitted", "duplicate"):
            return admission
        error = self._refusal(admission)
        error.headers |= limit_headers(self._settings, admission)
        raise error

    def _refusal(self, admission: Admission) -> ApiError:
        if admission.verdict == "tenant":
            return errors.rate_limited("Your requests in progress use all the tokens you may have at once.", 1.0)
        excess_s = admission.wait_s - self._settings.max_wait_s if admission.verdict == "wait" else admission.wait_s / 4
        return errors.queue_full(min(max(excess_s, 1.0), _MAX_ADVICE_S))

    @staticmethod
    def _advice_s(tokens: int, drain_rate: float, default_s: float) -> float:
        """The time in which a quarter of the queue drains: room for some, not an invitation to all at once."""
        return min(max(tokens / drain_rate / 4, 1.0), _MAX_ADVICE_S) if drain_rate > 0 else default_s


def live_bounds(settings: ApiSettings) -> Bounds:
    max_wait_ms = int(settings.max_wait_s * 1000)
    return Bounds(settings.queue_depth, settings.queue_tokens, settings.tenant_tokens, max_wait_ms)


def ready_workers(snapshot: Snapshot) -> list[WorkerInfo]:
    """Workers that take jobs now. Raises ApiError 503 when there are none."""
    if not snapshot.workers:
        raise errors.unavailable("No worker serves this model at the moment.", _NO_WORKER_ADVICE_S)
    ready = [worker for worker in snapshot.workers if not worker.is_draining]
    if not ready:
        raise errors.unavailable("The workers of this model are shutting down.", _NO_WORKER_ADVICE_S)
    return ready


def broker_away(job_id: str | None, error: redis.RedisError) -> ApiError:
    log.error("the broker cannot be reached", extra={"job_id": job_id, "error": repr(error)})
    return errors.unavailable("The queue cannot be reached at the moment.", 1.0)


def _refuse_too_long(job: Job, max_context: int) -> None:
    """A worker's own setting or a small pool may allow less than the model does."""
    longest = max(map(len, job.prompts))
    if longest >= max_context:
        named = (field for endpoint, field in _PROMPT_FIELDS.items() if job.id.startswith(ENDPOINT_PREFIXES[endpoint]))
        raise errors.context_length_exceeded(max_context, longest, next(named))


def _fits(job: Job, worker: WorkerInfo) -> bool:
    rounding = job.num_choices * (worker.page_size - 1)
    return job.cost + rounding <= worker.pool_tokens
