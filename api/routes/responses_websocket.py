"""GET /v1/responses, upgraded to a WebSocket: OpenAI's WebSocket mode of the Responses API."""

from functools import partial
from typing import Any

import flask_sock
from flask import Blueprint, g

from api.errors import ApiError, bad_request, unsupported_parameter
from api.pipeline.parse import UncheckedRequest
from api.relay.responses_session import OpenTurn, ResponsesSession, SessionLimits
from api.relay.websocket import WebSocketConnection
from api.responses.memory import ConversationMemory
from api.responses.turn import Turn, prepared_turn, validated_turn
from api.routes.generation import check_admissible
from api.routes.response_turns import admitted_turn, keep_answer
from api.routes.websocket import check_upgrade
from api.services import Services, services

PATH = "/v1/responses"

routes = Blueprint("responses_websocket", __name__)
routes.before_request(check_upgrade)
_sock = flask_sock.Sock()


@_sock.route(PATH, bp=routes)  # type: ignore[untyped-decorator]
def websocket(connection: WebSocketConnection) -> None:
    shared = services()
    settings = shared.settings
    limits = SessionLimits(settings.ws_max_requests, 2 * settings.ws_max_message_bytes, settings.ws_max_age_s)
    memory = ConversationMemory()
    session = ResponsesSession(connection, partial(_open_turn, shared, g.tenant, memory), limits)
    shared.websockets.serve(session)


def _open_turn(shared: Services, tenant: str, memory: ConversationMemory, fields: UncheckedRequest) -> OpenTurn:
    """Raises ApiError."""
    try:
        valid = validated_turn(shared, _body_of(fields))
        check_admissible(shared, valid.raw.service_tier)
        turn = prepared_turn(shared, valid, tenant, memory)
        stream = admitted_turn(shared, turn)
    except ApiError as error:
        shared.metrics.refused.labels(error.code or error.type).inc()
        raise
    return OpenTurn(stream, partial(_ended, shared, memory, turn))


def _body_of(fields: UncheckedRequest) -> UncheckedRequest:
    """The body of a POST that streams. Raises ApiError 400 for what a WebSocket has no use for."""
    if fields.get("stream") is False:
        raise bad_request("A WebSocket always streams: leave out 'stream'.", "stream")
    if fields.get("background"):
        raise unsupported_parameter("background", "false (over a WebSocket)")
    return {**fields, "stream": True}


def _ended(shared: Services, memory: ConversationMemory, turn: Turn, answer: dict[str, Any] | None) -> None:
    response_id = turn.prepared.job.id
    keep_answer(shared, turn, response_id)
    if answer is None:
        return
    memory.add(response_id, turn.remembered(answer["output"]))
