"""The Flask app: routes, errors in one envelope, CORS and request ids. ``create_app()`` is what gunicorn loads."""

import logging
import os
import secrets
import sys
import time

from flask import Flask, Response, current_app, g, request

from api.errors import ApiError, error_response, install_error_handlers
from api.paths import SingleSlashes
from api.pipeline.connection import CloseWhenAsked
from api.pipeline.served_model import load_served_model
from api.pipeline.tokenizer import TokenizerNotUsableError
from api.routes import (
    batches,
    chat_completions,
    completions,
    embeddings,
    files,
    health,
    messages,
    models,
    openapi,
    responses,
    responses_websocket,
    tokens,
    websocket,
)
from api.services import build_services, services
from api.settings import ApiSettings
from worker.protocol.configuration import BadSetting, read_settings
from worker.protocol.model_identity import ModelNotPrepared
from worker.protocol.structured_log import configure_logging

log = logging.getLogger("headrace.api")

_EXPOSED = (
    "x-request-id, retry-after, x-should-retry, x-headrace-job, openai-processing-ms, openai-version, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_VERSION = "2020-10-01"  # of OpenAI's API; there has been no other


def create_app(settings: ApiSettings | None = None) -> Flask:
    """Exits with a message when the settings or the model cannot be used."""
    try:
        settings = settings or read_settings(ApiSettings)
        configure_logging(settings.log_level)
        model = load_served_model(settings)
        shared = build_services(settings, model)
    except (BadSetting, ModelNotPrepared, TokenizerNotUsableError, ValueError) as error:
        print(f"headrace web: {error}", file=sys.stderr)
        sys.exit(os.EX_CONFIG)
    except OSError as error:  # files that had to be fetched, perhaps: worth another try
        sys.exit(f"headrace web: {error}")
    app = Flask("headrace", static_folder=None)
    app.url_map.strict_slashes = False
    app.extensions["headrace"] = shared
    app.wsgi_app = CloseWhenAsked(SingleSlashes(app.wsgi_app))  # type: ignore[method-assign]
    for blueprint in (
        chat_completions.routes,
        completions.routes,
        batches.routes,
        messages.routes,
        responses.routes,
        responses_websocket.routes,
        models.routes,
        tokens.routes,
        embeddings.routes,
        files.routes,
        openapi.routes,
        health.routes,
        websocket.routes,
    ):
        app.register_blueprint(blueprint)
    websocket.configure_websockets(app, settings)
    install_error_handlers(app)
    app.register_error_handler(ApiError, _refuse)
    app.before_request(_begin)
    app.after_request(_finish)
    return app


def _begin() -> Response | None:
    given = request.headers.get("x-request-id", "")
    g.request_id = given if given.isascii() and given.isprintable() and 0 < len(given) <= 128 else secrets.token_hex(16)
    g.began_s = time.monotonic()
    if request.method == "OPTIONS":
        allowed = current_app.create_url_adapter(request).allowed_methods()  # type: ignore[union-attr]
        return Response(status=204, headers={"Allow": ", ".join(sorted(allowed))} if allowed else {})
    return None


def _finish(response: Response) -> Response:
    response.headers["x-request-id"] = response.headers["request-id"] = g.get("request_id", "")
    if "began_s" in g:
        response.headers["openai-processing-ms"] = str(round((time.monotonic() - g.began_s) * 1000))
    response.headers["openai-version"] = _VERSION
    _allow_origin(response)
    return response


def _refuse(error: ApiError) -> Response:
    services().metrics.refused.labels(error.code or error.type).inc()
    return error_response(error)


def _allow_origin(response: Response) -> None:
    """Errors carry the CORS headers too: without them a browser hides what went wrong."""
    accepted = [o.strip() for o in services().settings.cors_origins.split(",") if o.strip()]
    origin = request.headers.get("Origin")
    if "*" in accepted:
        response.headers["Access-Control-Allow-Origin"] = "*"
    elif origin in accepted:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Vary"] = "Origin"
    else:
        return
    response.headers["Access-Control-Expose-Headers"] = _EXPOSED
    if request.method == "OPTIONS":
        response.headers["Access-Control-Allow-Methods"] = "GET, POST, DELETE, HEAD, OPTIONS"
        asked = request.headers.get("Access-Control-Request-Headers")
        response.headers["Access-Control-Allow-Headers"] = asked or "Authorization, Content-Type"
        response.headers["Access-Control-Max-Age"] = "600"
