"""POST /v1/responses, and what can be done with a response that is kept."""

from functools import partial
from typing import Any

import msgspec
from flask import Blueprint, Response, request

from api.endpoints import prepared_response
from api.errors import bad_request
from api.pipeline.responses_items import Item
from api.relay.dialects.responses import ResponsesDialect
from api.responses.known import answer_of, broker_asked, input_of, known_response
from api.responses.store import KeptResponse
from api.responses.turn import Turn, prepared_turn, validated_turn
from api.routes.generation import check_admissible, idempotency_key, read_request, relayed, stream_response
from api.routes.paging import choice_asked, limit_asked, page_of
from api.routes.response_turns import admitted_turn, keep_answer
from api.routes.resume import after_number
from api.services import Services, services, tenant_of_request

routes = Blueprint("responses", __name__)


@routes.post("/v1/responses")
def create() -> Response:
    shared = services()
    unchecked, tenant = read_request()
    return _answered(shared, prepared_response(shared, unchecked, tenant, partial(check_admissible, shared)))


@routes.post("/v1/responses/input_tokens")
def count_input_tokens() -> dict[str, Any]:
    shared = services()
    unchecked, tenant = read_request()
    if unchecked.get("model") is None:
        unchecked = {**unchecked, "model": shared.model.name}
    turn = prepared_turn(shared, validated_turn(shared, unchecked), tenant, {})
    return {"object": "response.input_tokens", "input_tokens": turn.prepared.job.num_prompt_tokens}


@routes.get("/v1/responses/<response_id>")
def retrieve(response_id: str) -> Response:
    shared = services()
    kept = known_response(shared, response_id, tenant_of_request())
    after = request.args.get("starting_after")
    if choice_asked("stream", "false", "true") == "false":
        if after is not None:
            raise bad_request("'starting_after' is only allowed when 'stream' is true.", "starting_after")
        return _json(answer_of(shared, response_id, kept))
    return _streamed_again(shared, response_id, kept, 1 + after_number(after, "starting_after") if after else 0)


@routes.post("/v1/responses/<response_id>/cancel")
def cancel(response_id: str) -> Response:
    """Only of a background response; one that has ended stays as it is."""
    shared = services()
    kept = known_response(shared, response_id, tenant_of_request())
    if not kept.stored.view.is_background:
        message = "Only responses made with 'background' can be cancelled. To end another one, close its connection."
        raise bad_request(message)
    with broker_asked(response_id):
        shared.queue.cancel(response_id, "cancelled_by_client", "The client cancelled the response.")
    return _json(answer_of(shared, response_id, kept))


@routes.delete("/v1/responses/<response_id>")
def delete(response_id: str) -> dict[str, Any]:
    """Ends it first, if it has not ended. Conversations that went on from it cannot go on any more."""
    shared = services()
    known_response(shared, response_id, tenant_of_request())
    shared.responses.delete(response_id)
    with broker_asked(response_id):
        shared.queue.forget(response_id)
    return {"id": response_id, "object": "response", "deleted": True}


@routes.get("/v1/responses/<response_id>/input_items")
def input_items(response_id: str) -> dict[str, Any]:
    """What the model was given, the turns before included; a page of it, the latest first unless asked otherwise."""
    shared = services()
    tenant = tenant_of_request()
    items = list(input_of(shared, tenant, known_response(shared, response_id, tenant)))
    if choice_asked("order", "desc", "asc") == "desc":
        items.reverse()
    page = _after(items, request.args.get("after"), limit_asked())
    return page_of(items[page], has_more=page.stop < len(items))


def _after(items: list[Item], after: str | None, limit: int) -> slice:
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise bad_request("'after' must be the id of an item of this response.", "after")
    start = 0 if after is None else ids.index(after) + 1
    return slice(start, start + limit)


def _answered(shared: Services, turn: Turn) -> Response:
    key = idempotency_key()
    stream = admitted_turn(shared, turn, shared.settings.resume_grace_s if key else 0.0, key)
    keep = partial(keep_answer, shared, turn, stream.job_id)
    view = turn.prepared.view
    if view.is_background:
        with broker_asked(stream.job_id):  # its client may forget it now, so the broker must not
            shared.queue.wait_durable()
    if view.is_background and not view.is_stream:
        stream.leave()
        if stream.job_id == turn.prepared.job.id:  # as it began, however far it has got by now
            return _json(ResponsesDialect(stream.job_id, view).response())
        return _json(answer_of(shared, stream.job_id, known_response(shared, stream.job_id, turn.stored.tenant)))
    if view.is_stream:
        response = relayed(stream, with_ids=False)
        response.call_on_close(keep)
        return response
    try:
        return relayed(stream, with_ids=False)
    finally:
        keep()


def _streamed_again(shared: Services, response_id: str, kept: KeptResponse, after: int) -> Response:
    """The events above `after`, as long as they are kept. Raises ApiError 400 when they are not."""
    with broker_asked(response_id):
        is_there = bool(shared.queue.describe(response_id))
    if not is_there:
        raise bad_request("The events of this response are not kept any more; ask for it without 'stream'.", "stream")
    shared.caretaker.start_once()
    stream = shared.relay.reopen(response_id, kept.stored.view)
    stream.confirm()
    client = request.environ.get("gunicorn.socket")
    if client is not None:
        stream.watch_client(client)
    return stream_response(stream, after=after, with_ids=False)


def _json(response: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(response), content_type="application/json")
