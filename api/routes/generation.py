"""What both completion endpoints do with a prepared request: admit it, then stream or collect its answer."""

import logging
import math
from collections.abc import Iterator

import msgspec
from flask import Response, request
from msgspec.structs import replace

from api import errors
from api.pipeline.body import read_body
from api.pipeline.normalize import used_tier
from api.pipeline.parse import UncheckedRequest, parse_json
from api.pipeline.prepare import PreparedRequest
from api.pipeline.rate_limits import limit_headers
from api.relay import sse
from api.relay.job_stream import JobStream
from api.relay.outcomes import error_of
from api.relay.subscriber import ClientGone
from api.routes.known_jobs import request_digest, view_of_repeat
from api.services import Services, services, tenant_of_request
from worker.protocol.event import Event
from worker.protocol.queue import Keeping

log = logging.getLogger("headrace.api")

RESUME_HEADER = "Headrace-Resume"
_CLIENT_CLOSED_REQUEST = 499  # nginx's word for it; nobody is there to read it
_MAX_KEY_CHARS = 256


def read_request() -> tuple[UncheckedRequest, str]:
    """The request's JSON object and its tenant, after the checks that cost nothing. Raises ApiError."""
    shared = services()
    tenant = tenant_of_request()
    body = read_body(request.environ, shared.settings.max_body_bytes, shared.settings.body_timeout_s)
    return parse_json(body, request.headers.get("Content-Type")), tenant


def answer(prepared: PreparedRequest) -> Response:
    """Admit the job and relay it. Raises ApiError when it is refused."""
    shared = services()
    with_ids, key = _wants_resume(prepared), idempotency_key()
    # Whoever sends a key means to come back after a broken connection: the job must still be there then.
    grace_s = shared.settings.resume_grace_s if with_ids or key else 0.0
    return relayed(admitted_stream(shared, prepared, grace_s, key), with_ids=with_ids)


def relayed(stream: JobStream, *, with_ids: bool) -> Response:
    """The whole answer of an admitted job, or the stream of it. Raises ApiError when a whole answer fails."""
    try:
        client = request.environ.get("gunicorn.socket")
        if client is not None:
            stream.watch_client(client)
        if stream.view.is_stream:
            return stream_response(stream, after=0, with_ids=with_ids)
        return _whole(stream)
    except BaseException:
        stream.leave()
        raise


def admitted_stream(
    shared: Services, prepared: PreparedRequest, resume_grace_s: float, idempotency_key: str = ""
) -> JobStream:
    """Subscribe first, then admit: no event can be missed. Without a grace its client's leaving ends the job.

    Raises ApiError.
    """
    job, settings = prepared.job, shared.settings
    shared.caretaker.start_once()
    view = replace(
        prepared.view, resume_grace_ms=math.ceil(resume_grace_s * 1000), request_digest=request_digest(prepared)
    )
    keeping = Keeping(
        watch_ms=shared.relay.watch_ms(view),
        retention_ms=view.kept_ms or int(settings.retention_s * 1000),
        idempotency_key=idempotency_key,
        client_state=msgspec.json.encode(view).decode(),
    )
    stream = shared.relay.open(job.id, view)
    try:
        admission = shared.admission.admit(job, keeping)
        if admission.job_id != job.id:
            stream.leave()
            stream = shared.relay.open(admission.job_id, view_of_repeat(shared, admission.job_id, view))
        stream.confirm(lambda: _admit_again(shared, prepared, keeping))
    except BaseException:
        stream.leave()
        raise
    stream.limits = limit_headers(settings, admission)
    if admission.verdict == "admitted":
        shared.metrics.admitted.labels(view.endpoint).inc()
    extra = {"job_id": stream.job_id, "tenant": job.tenant, "num_prompt_tokens": job.num_prompt_tokens}
    log.info("job " + admission.verdict, extra=extra)
    return stream


def stream_response(stream: JobStream, after: int, *, with_ids: bool) -> Response:
    """A server-sent event stream of the chunks numbered above `after`."""
    response = Response(_guarded(stream, with_ids, after), headers={**sse.HEADERS, **_headers(stream)})
    response.call_on_close(stream.leave)  # also when the body is never begun
    return response


def _guarded(stream: JobStream, with_ids: bool, after: int) -> Iterator[bytes]:
    """After the first byte nothing may escape: a traceback or a second status line would end up in the body."""
    framing = stream.dialect.framing
    try:
        yield from sse.sse_body(stream.chunk_lists(), framing, with_id=with_ids, after=after)
    except ClientGone:
        return
    except Exception:
        log.exception("the stream broke", extra={"job_id": stream.job_id})
        yield framing.error(errors.internal()) + framing.end
    finally:
        stream.leave()


def _whole(stream: JobStream) -> Response:
    events: list[Event] = []
    try:
        for some in stream.events():
            events += some
        if stream.terminal is not None and (error := error_of(stream.terminal)):
            raise error
    except ClientGone:
        return Response(status=_CLIENT_CLOSED_REQUEST)
    finally:
        stream.leave()
    body = stream.dialect.whole(events)
    return Response(msgspec.json.encode(body), content_type="application/json", headers=_headers(stream))


def _headers(stream: JobStream) -> dict[str, str]:
    return {"x-headrace-job": stream.job_id, **stream.limits}


def _admit_again(shared: Services, prepared: PreparedRequest, keeping: Keeping) -> None:
    shared.admission.admit_again(prepared.job, keeping)


def check_admissible(shared: Services, service_tier: str | None = None) -> None:
    """The bounds check that comes before template and tokenizer. Raises ApiError."""
    shared.admission.check_cheaply(used_tier(service_tier)[0])


def _wants_resume(prepared: PreparedRequest) -> bool:
    value = request.headers.get(RESUME_HEADER, "").strip().lower()
    if value not in ("", "0", "1", "false", "true"):
        raise errors.bad_request(f"The header {RESUME_HEADER} must be true or false.")
    return prepared.view.is_stream and value in ("1", "true")


def idempotency_key() -> str:
    """Raises ApiError 400 when it is too long."""
    key = request.headers.get("Idempotency-Key", "").strip()
    if len(key) > _MAX_KEY_CHARS:
        raise errors.bad_request(f"The header Idempotency-Key is longer than {_MAX_KEY_CHARS} characters.")
    return key
