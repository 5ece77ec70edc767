"""Jobs that were admitted earlier, perhaps by another process: how Redis remembers that they are shown."""

import hashlib

import msgspec
import redis
from msgspec.structs import replace

from api import errors
from api.pipeline.admission import broker_away
from api.pipeline.prepare import PreparedRequest
from api.services import Services
from api.stream_view import StreamView


def view_of_job(shared: Services, job_id: str, tenant: str | None = None) -> StreamView | None:
    """None when Redis does not know the job or it is not this tenant's. Raises ApiError 503."""
    try:
        job = shared.queue.describe(job_id)
    except redis.RedisError as error:
        raise broker_away(job_id, error) from error
    if "client_state" not in job or (tenant is not None and job["tenant"] != tenant):
        return None
    view: StreamView = msgspec.json.decode(job["client_state"], type=StreamView)
    return view


def view_of_repeat(shared: Services, job_id: str, view: StreamView) -> StreamView:
    """How a repeat of an earlier request sees its job. Raises ApiError 409 for another request under the same key."""
    earlier = view_of_job(shared, job_id)
    if earlier is None or earlier.request_digest != view.request_digest:
        raise errors.idempotency_key_reused()
    return replace(view, created_s=earlier.created_s)


def request_digest(prepared: PreparedRequest) -> str:
    """The same for a repeat of the request: its id, time and a minted seed differ, and it may stream or not."""
    job, view = prepared.job, prepared.view
    sampling = job.sampling if view.is_seeded else replace(job.sampling, seed=0)
    told = (view.endpoint, view.answer, view.echo, view.shown, view.service_tier, view.is_seeded)
    asked = (*told, job.job_class, job.prompts, job.n, sampling)
    return hashlib.sha256(msgspec.msgpack.encode(asked)).hexdigest()
