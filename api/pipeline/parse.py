"""From a request's bytes to a JSON object, within limits of encoding and nesting."""

import codecs
import json
import math
from typing import Any

import msgspec
from werkzeug.http import parse_options_header

from api.errors import ApiError, bad_request, unsupported_media_type

UncheckedRequest = dict[str, Any]  # JSON of which nothing is known but that it is an object


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
        place = _non_finite_place(json.loads(text))
    except (ValueError, RecursionError):
        return None
    return place and place.removeprefix(".")


def _non_finite_place(value: Any) -> str | None:
    """Empty for such a number itself."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        if isinstance(each, float | dict | list) and (place := _non_finite_place(each)) is not None:
            return (f".{key}" if isinstance(value, dict) else f"[{key}]") + place
    return None
