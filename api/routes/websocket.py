"""GET /v1/ws, upgraded to a WebSocket: many requests at once on one connection."""

import base64
import binascii
from functools import partial
from typing import Any

import flask_sock
from flask import Blueprint, Flask, Response, g, request
from werkzeug.sansio.utils import host_is_trusted

from api.endpoints import prepared_chat, prepared_completion
from api.errors import ApiError, bad_request, not_found
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prepare import PreparedRequest
from api.relay.job_stream import JobStream
from api.relay.websocket import WebSocketConnection
from api.relay.websocket_messages import RequestMessage, ResumeMessage
from api.relay.websocket_session import StartMessage, WebSocketSession
from api.routes.generation import admitted_stream, check_admissible
from api.routes.resume import reopened_stream
from api.services import Services, services
from api.settings import ApiSettings
from worker.protocol.job import ENDPOINT_PREFIXES

PATH = "/v1/ws"
_VERSION = "13"
_KEY_BYTES = 16

# flask-sock has no other way to be given a server that keeps to the rules; see api/relay/websocket.py.
flask_sock.Server = WebSocketConnection

routes = Blueprint("websocket", __name__)
_sock = flask_sock.Sock()


def configure_websockets(app: Flask, settings: ApiSettings) -> None:
    """The options that flask-sock hands to each WebSocketConnection."""
    app.config["SOCK_SERVER_OPTIONS"] = {
        "max_message_bytes": settings.ws_max_message_bytes,
        "ping_s": settings.ping_s,
        "stall_timeout_s": settings.stall_timeout_s,
    }


@routes.before_request
def check_upgrade() -> None:
    """All that can be refused with an HTTP status is refused before the upgrade. Raises ApiError."""
    shared = services()
    _check_origin(request.headers.get("Origin"), shared.settings.cors_origins)
    _check_host(request.headers.get("Host"), shared.settings.allowed_hosts)
    # Browsers cannot set headers on a WebSocket.
    g.tenant = shared.keys.tenant_of(request.headers.get("Authorization"), request.args.get("api_key"))
    if request.url_rule is not None and request.url_rule.websocket:
        _check_handshake()


@_sock.route(PATH, bp=routes)  # type: ignore[untyped-decorator]
def websocket(connection: WebSocketConnection) -> None:
    shared = services()
    session = WebSocketSession(connection, partial(_opened_stream, shared, g.tenant), shared.settings.ws_max_requests)
    shared.websockets.serve(session)


@routes.get(PATH)
def not_upgraded() -> Response:
    message = "This is a WebSocket: ask for it with the headers Connection: Upgrade and Upgrade: websocket."
    raise ApiError(426, message, code="upgrade_required", headers={"Upgrade": "websocket", "Connection": "Upgrade"})


def _check_origin(origin: str | None, accepted: str) -> None:
    """Browsers let any page open a WebSocket and say where the page is from; other clients say nothing."""
    names = {name.strip().lower() for name in accepted.split(",")}
    if origin is not None and "*" not in names and origin.lower() not in names:
        raise ApiError(403, "WebSockets from this origin are not accepted.", code="origin_not_allowed")


def _check_host(host: str | None, allowed: str) -> None:
    """A page whose host name was made to point at this server (DNS rebinding) still names its own host."""
    names = [name.strip().lower() for name in allowed.split(",") if name.strip()]
    if names and not host_is_trusted((host or "").lower(), names):
        raise ApiError(403, "This host name is not served.", code="host_not_allowed")


def _check_handshake() -> None:
    if request.headers.get("Sec-WebSocket-Version") != _VERSION:
        message = f"Only version {_VERSION} of the WebSocket protocol is supported."
        raise ApiError(426, message, code="upgrade_required", headers={"Sec-WebSocket-Version": _VERSION})
    try:
        key = base64.b64decode(request.headers.get("Sec-WebSocket-Key", ""), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise bad_request("The header Sec-WebSocket-Key must hold 16 bytes in base64.")


def _opened_stream(shared: Services, tenant: str, message: StartMessage) -> JobStream:
    """Admit a request, or go on with a job. Raises ApiError."""
    try:
        if isinstance(message, ResumeMessage):
            _check_resumable(message.job)
            return reopened_stream(shared, message.job, tenant)
        grace_s = min(message.resume_grace_s or 0.0, shared.settings.resume_grace_s)
        return admitted_stream(shared, _prepared(shared, tenant, message), grace_s)
    except ApiError as error:
        shared.metrics.refused.labels(error.code or error.type).inc()
        raise


def _check_resumable(job_id: str) -> None:
    """Jobs of other endpoints have chunks that mean nothing here. Raises ApiError 404."""
    if not job_id.startswith(tuple(ENDPOINT_PREFIXES[endpoint] for endpoint in ("chat.completions", "completions"))):
        raise not_found("There is no such stream on this WebSocket.")


def _prepared(shared: Services, tenant: str, message: RequestMessage) -> PreparedRequest:
    """The same steps as for a POST. Raises ApiError."""
    body = _streamed(message.body)
    prepared = prepared_chat if message.endpoint == "chat.completions" else prepared_completion
    return prepared(shared, body, tenant, partial(check_admissible, shared))


def _streamed(body: UncheckedRequest) -> UncheckedRequest:
    stream: Any = body.get("stream")
    if stream is False:
        raise bad_request("A WebSocket always streams: leave out 'stream' or set it to true.", "stream")
    return body if stream is not None else {**body, "stream": True}
