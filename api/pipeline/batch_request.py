"""The body of POST /v1/batches, checked as far as that goes without its file."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from api.errors import bad_request
from api.pipeline.parse import UncheckedRequest
from api.pipeline.raw import convert
from api.pipeline.responses_request import check_metadata

MAX_WINDOW_S = 7 * 24 * 3600
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_WINDOW = re.compile(r"([1-9][0-9]{0,6})([smh])")


class RawOutputExpiry(msgspec.Struct):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=3600, le=2_592_000)]


class RawBatchRequest(msgspec.Struct, kw_only=True):
    input_file_id: str | None = None
    endpoint: str | None = None
    completion_window: str | None = None
    metadata: dict[str, str] | None = None
    output_expires_after: RawOutputExpiry | None = None


class ValidBatchRequest(msgspec.Struct, frozen=True):
    input_file_id: str
    endpoint: str
    completion_window: str
    window_s: int
    metadata: dict[str, str] | None
    output_ttl_s: int | None


def validate_batch(request: UncheckedRequest, endpoints: tuple[str, ...]) -> ValidBatchRequest:
    """Raises ApiError 400 that names the field."""
    raw = convert(request, RawBatchRequest)
    endpoint, window = _given("endpoint", raw.endpoint), _given("completion_window", raw.completion_window)
    if endpoint not in endpoints:
        raise bad_request(f"'endpoint' must be one of {', '.join(endpoints)}.", "endpoint")
    check_metadata(raw.metadata or {})
    return ValidBatchRequest(
        input_file_id=_given("input_file_id", raw.input_file_id),
        endpoint=endpoint,
        completion_window=window,
        window_s=_window_s(window),
        metadata=raw.metadata,
        output_ttl_s=None if raw.output_expires_after is None else raw.output_expires_after.seconds,
    )


def _given(name: str, value: str | None) -> str:
    if not value:
        raise bad_request(f"You must provide the parameter '{name}'.", name)
    return value


def _window_s(window: str) -> int:
    found = _WINDOW.fullmatch(window)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= MAX_WINDOW_S:
        message = "'completion_window' must be '24h', or another number of s, m or h up to a week, such as '90m'."
        raise bad_request(message, "completion_window")
    return seconds
