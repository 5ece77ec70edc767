"""One error vocabulary: what a client may be told, as an HTTP body and inside a stream alike."""

import logging
import math
from collections.abc import Mapping

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

INVALID_REQUEST = "invalid_request_error"
RATE_LIMIT = "rate_limit_error"
SERVER_ERROR = "server_error"
ANTHROPIC_PATH = "/v1/messages"  # errors there, and below, have Anthropic's envelope
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
CLOSE = {"Connection": "close"}  # for answers to a body that was not read to its end
NO_RETRY = {"x-should-retry": "false"}  # clients repeat every 409, 429 and 5xx unless told not to

_logger = logging.getLogger(__name__)


class ApiError(Exception):
    """An answer other than success. `headers` are sent with it where it is an HTTP response of its own."""

    def __init__(
        self,
        status: int,
        message: str,
        type: str = INVALID_REQUEST,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, dict[str, str | None]]:
        """OpenAI's envelope, always with its four keys and always text that JSON can carry."""
        fields = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": {key: value and _printable(value) for key, value in fields.items()}}

    def anthropic_body(self) -> dict[str, object]:
        usual = "api_error" if self.status >= 500 else INVALID_REQUEST
        kind = _ANTHROPIC_TYPES.get(self.status, usual)
        return {"type": "error", "error": {"type": kind, "message": _printable(self.message)}}


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def unsupported_parameter(name: str, accepted: str) -> ApiError:
    """A known parameter that is not served yet; `accepted` says which of its values are."""
    message = f"This server does not support '{name}' yet; the only value accepted is {accepted}."
    return bad_request(message, name, "unsupported_parameter")


def context_length_exceeded(max_context: int, num_tokens: int, param: str, *, is_lower_bound: bool = False) -> ApiError:
    """`num_tokens` are the prompt's, or the fewest it can have where counting them would be wasted work."""
    count = f"at least {num_tokens}" if is_lower_bound else str(num_tokens)
    message = (
        f"This model's maximum context length is {max_context} tokens. However, your {param} resulted in {count} "
        f"tokens, and at least one token must remain for the answer. Please reduce the length of the {param}."
    )
    return bad_request(message, param, "context_length_exceeded")


def unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def not_found_model(name: str) -> ApiError:
    message = f"The model '{name[:200]}' does not exist or you do not have access to it."
    return ApiError(404, message, param="model", code="model_not_found")


def not_found(message: str) -> ApiError:
    return ApiError(404, message, code="not_found")


def method_not_allowed(method: str, allowed: str) -> ApiError:
    return ApiError(405, f"{method} is not allowed here; use {allowed}.", code="method_not_allowed")


def idempotency_key_reused() -> ApiError:
    message = "This Idempotency-Key was used for another request."
    return ApiError(409, message, code="idempotency_key_reused", headers=NO_RETRY)


def request_timeout(after_s: float) -> ApiError:
    message = f"The request body did not arrive within {after_s:g} seconds."
    return ApiError(408, message, code="request_timeout", headers=CLOSE)


def request_stalled(after_s: float) -> ApiError:
    message = f"No more of the request body arrived for {after_s:g} seconds."
    return ApiError(408, message, code="request_timeout", headers=CLOSE)


def payload_too_large(max_bytes: int) -> ApiError:
    message = f"The request body is larger than {max_bytes} bytes."
    return ApiError(413, message, code="payload_too_large", headers=CLOSE)


def unsupported_media_type(message: str, headers: Mapping[str, str] | None = None) -> ApiError:
    return ApiError(415, message, code="unsupported_media_type", headers=headers)


def rate_limited(message: str, retry_after_s: float) -> ApiError:
    return ApiError(429, message, RATE_LIMIT, code="rate_limit_exceeded", headers=_retry_after(retry_after_s))


def queue_full(retry_after_s: float) -> ApiError:
    message = "The queue is full. Please try again later."
    return ApiError(429, message, RATE_LIMIT, code="queue_full", headers=_retry_after(retry_after_s))


def internal() -> ApiError:
    return ApiError(500, "The server had an error while processing your request.", SERVER_ERROR, code="internal_error")


def unavailable(reason: str, retry_after_s: float) -> ApiError:
    return ApiError(503, reason, SERVER_ERROR, code="unavailable", headers=_retry_after(retry_after_s))


def timeout(after_s: float) -> ApiError:
    """The request's own time ran out; the same request would only run out of it again."""
    message = f"The request did not finish within {after_s:g} seconds."
    return ApiError(504, message, "timeout_error", code="timeout", headers=NO_RETRY)


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def error_response(error: ApiError) -> Response:
    """In the envelope of the API that the request's path belongs to."""
    is_anthropic = request.path == ANTHROPIC_PATH or request.path.startswith(ANTHROPIC_PATH + "/")
    body = error.anthropic_body() if is_anthropic else error.body()
    return Response(
        msgspec.json.encode(body), status=error.status, headers=error.headers, content_type="application/json"
    )


def install_error_handlers(app: Flask) -> None:
    """Every error of the app, its routing and its crashes included, becomes the JSON envelope."""
    app.register_error_handler(ApiError, error_response)
    app.register_error_handler(HTTPException, _http_error_response)
    app.register_error_handler(Exception, _crash_response)


def _http_error_response(error: HTTPException) -> Response:
    """Werkzeug's own errors keep their status and headers (Allow, Retry-After ...); only their HTML body goes."""
    response = error_response(_from_werkzeug(error))
    for name, value in error.get_headers():
        if name.lower() not in {"content-type", "content-length"}:
            response.headers[name] = value
    return response


def _from_werkzeug(error: HTTPException) -> ApiError:
    status = error.code or 500
    if status == 404:
        return ApiError(404, f"Invalid URL ({request.method} {request.path})", code="unknown_url")
    if status == 405:
        allowed = ", ".join(sorted(getattr(error, "valid_methods", None) or []))
        return method_not_allowed(request.method, allowed)
    if status >= 500:
        return ApiError(status, error.description or error.name, SERVER_ERROR)
    return ApiError(status, error.description or error.name)


def _crash_response(error: Exception) -> Response:
    _logger.error("unhandled error in %s %s", request.method, request.path, exc_info=error)
    return error_response(internal())
