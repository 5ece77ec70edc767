"""A turn of a conversation is admitted and its answer kept, the same over HTTP and WebSocket."""

import logging

import redis

from api.errors import ApiError
from api.relay.job_stream import JobStream
from api.responses.known import answer_of
from api.responses.store import KeptResponse
from api.responses.turn import Turn
from api.routes.generation import admitted_stream
from api.services import Services

log = logging.getLogger("headrace.api")


def admitted_turn(shared: Services, turn: Turn, grace_s: float = 0.0, idempotency_key: str = "") -> JobStream:
    """Admitted, and kept so that every process can find it. Raises ApiError."""
    job = turn.prepared.job
    if turn.is_stored:
        shared.responses.check_size(turn.stored)
    stream = admitted_stream(shared, turn.prepared, grace_s, idempotency_key)
    try:
        if turn.is_stored and stream.job_id == job.id:  # not a repeat, which is kept already
            shared.responses.save(job.id, turn.stored, job.timeout_ms)
    except ApiError:
        try:
            stream.cancel("not_kept", "The response could not be stored.")
        except redis.RedisError as error:  # then leaving it is left to its watcher lease
            log.warning("cancelling a response that is not kept", extra={"job_id": job.id, "error": repr(error)})
        finally:
            stream.leave()
        raise
    return stream


def keep_answer(shared: Services, turn: Turn, response_id: str) -> None:
    """Once the turn has ended or its client has left it. Its job's events are kept for a shorter time."""
    if not turn.is_stored or response_id != turn.prepared.job.id:
        return
    try:
        answer_of(shared, response_id, KeptResponse(turn.stored))
    except ApiError as error:  # whoever asks for it while the events are there will keep it
        log.warning("an answer is not kept yet", extra={"job_id": response_id, "error": error.message})
