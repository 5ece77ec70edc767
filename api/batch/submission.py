"""A line of a batch becomes a job, by the way of every live request to its endpoint."""

import logging

import msgspec
import redis
from msgspec.structs import asdict, replace

from api import errors
from api.batch.records import ENDPOINTS, Batch, derived_digits
from api.batch.settings import BatchSettings
from api.batch.validation import RawLine
from api.endpoints import prepared_chat, prepared_completion, prepared_response
from api.errors import ApiError, unsupported_parameter
from api.pipeline.admission import AdmissionControl, ready_workers
from api.pipeline.embedding_request import refusal_of_embeddings
from api.pipeline.parse import UncheckedRequest, parse_json
from api.pipeline.prepare import PreparedRequest
from api.responses.store import StoredResponse
from api.services import Services
from api.settings import ApiSettings
from api.stream_view import StreamView
from worker.protocol.job import ENDPOINT_PREFIXES, JobClass
from worker.protocol.queue import Bounds, Keeping

log = logging.getLogger("headrace.batch")

# On top of the batch's own time: a line ends because its batch does, never because its job was forgotten before.
_MARGIN_S = 24 * 3600
_NO_LIMIT_MS = 2**53
_NOT_NOW = (429, 503)


class NotNow(Exception):
    """Nothing is wrong with the line: the queue is full or nobody serves it. It is to be tried again."""


class LineView(StreamView, frozen=True, omit_defaults=True):
    """What is kept with a line's job: how its answer is shown, and whose it is."""

    custom_id: str = ""
    number: int = 0


def batch_bounds(settings: ApiSettings, batch: BatchSettings) -> Bounds:
    """Batches leave half of a tenant's tokens to its live requests, and may wait as long as it takes."""
    return Bounds(batch.queue_depth, batch.queue_tokens, max(1, settings.tenant_tokens // 2), _NO_LIMIT_MS)


class Submission:
    """Safe to share between threads. The same line always becomes the same job: to submit it again changes nothing."""

    def __init__(self, shared: Services, settings: BatchSettings) -> None:
        self._shared = shared
        self._admission = AdmissionControl(shared.queue, shared.settings, batch_bounds(shared.settings, settings))

    def job_id(self, batch: Batch, number: int) -> str:
        """Of a line's job."""
        prefix = ENDPOINT_PREFIXES.get(ENDPOINTS[batch.order.endpoint], "")
        return f"{prefix}{self._shared.model.name}-{derived_digits(batch.id, 'job', number)}"

    def check_open(self) -> None:
        """Raises NotNow when no worker takes jobs."""
        try:
            ready_workers(self._admission.snapshot())
        except ApiError as error:
            raise NotNow(error.message) from error

    def submit(self, batch: Batch, number: int, text: bytes) -> tuple[str, ApiError | None]:
        """The line's custom_id, and why it is refused, None when it is a job now.

        Raises NotNow, or redis.RedisError.
        """
        line = msgspec.json.decode(text, type=RawLine)
        try:
            self._admit(batch, number, line)
        except ApiError as error:
            if error.status in _NOT_NOW:
                raise NotNow(error.message) from error
            return line.custom_id, error
        except redis.RedisError:
            raise
        except Exception:
            # As a live request's would: the one line fails, and those behind it get their turn.
            log.exception("a line broke its endpoint", extra={"batch_id": batch.id, "line": number})
            return line.custom_id, errors.internal()
        return line.custom_id, None

    def _admit(self, batch: Batch, number: int, line: RawLine) -> None:
        body = _body_of(batch, number, line)
        prepared, stored = self._prepared(batch, number, body)
        left_ms = max(0, batch.expires_at * 1000 - batch.now_ms) + _MARGIN_S * 1000
        job = replace(
            prepared.job,
            id=self.job_id(batch, number),
            job_class=JobClass.BATCH,
            timeout_ms=left_ms if body.get("timeout") is None else prepared.job.timeout_ms,
        )
        view = LineView(**asdict(prepared.view), custom_id=line.custom_id, number=number)
        keeping = Keeping(watch_ms=0, retention_ms=left_ms, client_state=msgspec.json.encode(view).decode())
        if stored is not None:
            self._shared.responses.check_size(stored)
        admission = self._admission.admit(job, keeping)
        if stored is not None:
            self._shared.responses.save(job.id, stored, job.timeout_ms)
        log.debug("line " + admission.verdict, extra={"job_id": job.id, "batch_id": batch.id, "line": number})

    def _prepared(
        self, batch: Batch, number: int, body: UncheckedRequest
    ) -> tuple[PreparedRequest, StoredResponse | None]:
        shared, tenant, endpoint = self._shared, batch.order.tenant, ENDPOINTS[batch.order.endpoint]
        if endpoint == "chat.completions":
            return prepared_chat(shared, body, tenant, _unchecked), None
        if endpoint == "completions":
            return prepared_completion(shared, body, tenant, _unchecked), None
        if endpoint == "responses":
            turn = prepared_response(shared, body, tenant, _unchecked, derived_digits(batch.id, "job", number))
            return turn.prepared, turn.stored if turn.is_stored else None
        raise refusal_of_embeddings(body, shared.model)


def _unchecked(_service_tier: str | None) -> None:
    """The bounds are asked once for many lines, see `check_open`, and each job's admission has the last word."""


def _body_of(batch: Batch, number: int, line: RawLine) -> UncheckedRequest:
    """With a seed, where the line has none: submitted again it must be the same. Raises ApiError 400."""
    body = parse_json(bytes(line.body))
    for name in ("stream", "background"):
        if body.get(name):
            raise unsupported_parameter(name, "false (in a batch)")
    if body.get("seed") is None:
        return {**body, "seed": int(derived_digits(batch.id, "seed", number)[:16], 16)}
    return body
