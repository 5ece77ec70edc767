"""From a request's bytes to a JSON object, within limits of size, time, encoding and nesting."""

import codecs
import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

import gevent
import msgspec
from werkzeug.http import parse_options_header

from api.errors import CLOSE, ApiError, bad_request, payload_too_large, request_timeout, unsupported_media_type

READ_SIZE = 64 * 1024  # bytes
DISCARD_FACTOR = 16  # of a body that is refused, so many times the limit is read and thrown away ...
DISCARD_S = 5.0  # ... for so long

UncheckedRequest = dict[str, Any]  # JSON of which nothing is known but that it is an object


class _Input(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _TooLateError(BaseException):
    """Not an Exception, so that the handler of read errors does not swallow it."""


def read_body(environ: Mapping[str, Any], max_bytes: int, timeout_s: float) -> bytes:
    """The whole body of a WSGI request, whether of declared length or chunked.

    Raises ApiError: 400 when the body breaks off, 408 when it has not arrived within `timeout_s`, 413 when it is
    larger than `max_bytes`, 415 when it is compressed.
    """
    _check_encoding(environ.get("HTTP_CONTENT_ENCODING", ""))
    length = _declared_length(environ)
    if length == 0:
        return b""
    source: _Input = environ["wsgi.input"]
    too_late = _TooLateError()
    try:
        with gevent.Timeout(timeout_s, too_late):
            body = b"" if length is not None and length > max_bytes else _read(source, length, max_bytes)
    except _TooLateError as error:
        if error is not too_late:
            raise
        raise request_timeout(timeout_s) from None
    if len(body) > max_bytes or (length is not None and length > max_bytes):
        _discard(source, max_bytes)
        raise payload_too_large(max_bytes)
    if length is not None and len(body) < length:
        raise _broken_off()
    return body


def _check_encoding(encoding: str) -> None:
    if encoding.strip().lower() not in {"", "identity"}:
        message = f"Content-Encoding {encoding[:40]!r} is not supported; send the body as it is."
        raise unsupported_media_type(message, CLOSE)


def _declared_length(environ: Mapping[str, Any]) -> int | None:
    """Bytes the body will have, or None for a chunked one, whose end the server shows as the end of the input."""
    if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
        return None
    declared = environ.get("CONTENT_LENGTH") or "0"
    if not (declared.isascii() and declared.isdigit() and len(declared) < 20):
        raise ApiError(400, "The Content-Length header is not a number.", headers=CLOSE)
    return int(declared)


def _read(source: _Input, length: int | None, max_bytes: int) -> bytes:
    """Up to `length` bytes, or one more than `max_bytes` of a body that is too large."""
    wanted = max_bytes + 1 if length is None else length
    parts: list[bytes] = []
    while wanted > 0 and (part := _read_part(source, wanted)):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _read_part(source: _Input, wanted: int) -> bytes:
    try:
        return source.read(min(READ_SIZE, wanted))
    except Exception as error:  # the server's reader has errors of its own for each way of breaking chunks
        raise _broken_off() from error


def _broken_off() -> ApiError:
    return ApiError(400, "The request body ended too early or is malformed.", headers=CLOSE)


def _discard(source: _Input, max_bytes: int) -> None:
    """Most clients read no answer before they have sent everything, so take a while longer what is on its way."""
    left = DISCARD_FACTOR * max_bytes
    with contextlib.suppress(_TooLateError), gevent.Timeout(DISCARD_S, _TooLateError()):
        while left > 0:
            try:
                part = source.read(READ_SIZE)
            except Exception:
                return
            left = left - len(part) if part else 0


def parse_json(body: bytes, content_type: str | None = None) -> UncheckedRequest:
    """The JSON object in a request body. Raises ApiError 400, or 415 for a declared type other than JSON."""
    _check_content_type(content_type)
    text = body.removeprefix(codecs.BOM_UTF8)
    if not text.strip():
        raise bad_request("The request body is empty; send a JSON object.")
    try:
        decoded = msgspec.json.decode(text)
    except RecursionError:
        raise bad_request("The JSON of the request body is nested too deeply.") from None
    except msgspec.DecodeError as error:
        raise _invalid_json(text, error) from None
    if not isinstance(decoded, dict):
        raise bad_request("The request body must be a JSON object.")
    return decoded


def _check_content_type(content_type: str | None) -> None:
    if not content_type:
        return
    kind, options = parse_options_header(content_type)
    if kind.lower() != "application/json" and not kind.lower().endswith("+json"):
        raise unsupported_media_type(f"Content-Type {kind[:80]!r} is not supported; send application/json.")
    charset = options.get("charset", "utf-8")
    if charset.lower().replace("_", "-") not in {"utf-8", "utf8", "us-ascii"}:
        raise unsupported_media_type(f"The charset {charset[:40]!r} is not supported; send UTF-8.")


def _invalid_json(text: bytes, error: msgspec.DecodeError) -> ApiError:
    param = _non_finite_field(text)
    if param is not None:
        return bad_request(f"'{param}' must be a finite number.", param)
    if "surrogate" in str(error) or "UTF-8" in str(error):
        return bad_request(f"The request body holds text that is not valid Unicode: {error}.")
    return bad_request(f"We could not parse the JSON body of your request: {error}.")


def _non_finite_field(text: bytes) -> str | None:
    """The field that holds NaN or Infinity, which are no JSON but which many clients write."""
    try:
        loose = json.loads(text)
    except (ValueError, RecursionError):
        return None
    items = loose.items() if isinstance(loose, dict) else ()
    return next((key for key, value in items if isinstance(value, float) and not math.isfinite(value)), None)
