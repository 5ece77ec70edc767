"""Going on with a stream, at any API process: the replay list is all that is needed."""

from flask import Response, request

from api import errors
from api.errors import ApiError
from api.relay.job_stream import JobStream
from api.routes.generation import stream_response
from api.routes.known_jobs import view_of_job
from api.services import Services, services, tenant_of_request
from api.stream_view import StreamView
from worker.protocol.job import pool_of


def resume_stream(endpoint: str, job_id: str, after: str | None) -> Response:
    """The chunks numbered above `after` (or the header Last-Event-ID) of a job of this endpoint. Raises ApiError."""
    shared = services()
    tenant = tenant_of_request()
    number = after_number(after if after is not None else request.headers.get("Last-Event-ID"))
    stream = reopened_stream(shared, job_id, tenant, endpoint)
    client = request.environ.get("gunicorn.socket")
    if client is not None:
        stream.watch_client(client)
    return stream_response(stream, after=number, with_ids=True)


def reopened_stream(shared: Services, job_id: str, tenant: str, endpoint: str | None = None) -> JobStream:
    """A job of this tenant, and of the endpoint if one is named, from its first event. Raises ApiError 404."""
    view = _view_of(shared, job_id, tenant)
    if endpoint not in (None, view.endpoint):
        raise _unknown()
    shared.caretaker.start_once()
    stream = shared.relay.reopen(job_id, view)
    stream.confirm()
    return stream


def _view_of(shared: Services, job_id: str, tenant: str) -> StreamView:
    if pool_of(job_id) != shared.model.name:
        raise _unknown()
    view = view_of_job(shared, job_id, tenant)
    if view is None or not view.is_stream:
        raise _unknown()
    return view


def _unknown() -> ApiError:
    return errors.not_found("There is no such stream. It may have ended too long ago.")


def after_number(text: str | None, param: str = "after") -> int:
    """Raises ApiError 400 when the text is not a chunk's number."""
    if text is None or text == "":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise errors.bad_request(f"'{param}' must be the number of the last chunk received.", param)
    return int(text)
