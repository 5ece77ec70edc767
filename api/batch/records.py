"""A batch: what was ordered, how far it is, and how a client sees it."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

ENDPOINTS = {
    "/v1/chat/completions": "chat.completions",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/embeddings": "embeddings",
}
ENDED = ("completed", "failed", "expired", "cancelled")
USAGE = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
_STAMPS = (
    "in_progress_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at", "cancelled_at",
)  # fmt: skip
_PREFIX = "batch_"


class Order(msgspec.Struct, frozen=True):
    """What the client asked for. `window_s` is its completion window."""

    id: str
    tenant: str
    endpoint: str  # as a path
    input_file_id: str
    completion_window: str
    window_s: int
    metadata: dict[str, str] | None = None
    output_ttl_s: int | None = None  # of the output and the error file


class LineError(msgspec.Struct, frozen=True):
    """As it stands in `errors.data`; `line` counts from 1, and is None for what is wrong with the whole file."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True)
class Batch:
    """A batch as Redis had it when it was asked. Places are those of its plan, counted from 0."""

    order: Order
    status: str
    cause: str  # why it was stopped: cancelled or expired; empty while it was not
    created_at: int
    expires_at: int
    stamps: Mapping[str, int]
    plan: str  # the stored object's name; empty until the file was read
    num_planned: int
    cursor: int  # every place below it was submitted
    counts: Mapping[str, int]
    usage: Mapping[str, int]
    errors: tuple[LineError, ...]
    model: str
    files: Mapping[str, str]
    collected_ms: int
    now_ms: int  # by Redis' clock, as all its times are

    @property
    def id(self) -> str:
        return self.order.id

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_due(self) -> bool:
        """Its time is over, and nothing has stopped it yet."""
        return self.status in ("validating", "in_progress") and self.now_ms >= self.expires_at * 1000

    def shown(self) -> dict[str, Any]:
        """The object of OpenAI's API."""
        errors = {"object": "list", "data": [msgspec.to_builtins(error) for error in self.errors]}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.order.endpoint,
            "model": self.model or None,
            "errors": errors if self.errors else None,
            "input_file_id": self.order.input_file_id,
            "completion_window": self.order.completion_window,
            "status": self.status,
            "output_file_id": self.files.get("output_file_id"),
            "error_file_id": self.files.get("error_file_id"),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            **{name: self.stamps.get(name) for name in _STAMPS},
            "request_counts": {name: self.counts[name] for name in ("total", "completed", "failed")},
            "usage": self._shown_usage(),
            "metadata": self.order.metadata,
        }

    def _shown_usage(self) -> dict[str, Any]:
        read, cached, written, reasoning = (self.usage[name] for name in USAGE)
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": read + written,
        }


def mint_batch_id() -> str:
    return _PREFIX + secrets.token_hex(16)


def is_batch_id(text: str) -> bool:
    digits = text.removeprefix(_PREFIX)
    return len(text) == len(_PREFIX) + 32 and len(digits) == 32 and all(c in "0123456789abcdef" for c in digits)


def derived_digits(batch_id: str, *names: str | int) -> str:
    """32 hex digits that belong to a part of a batch: the same whenever they are asked for, and as hard to guess."""
    return hashlib.sha256(":".join((batch_id, *map(str, names))).encode()).hexdigest()[:32]


_decode_order = msgspec.json.Decoder(Order).decode
_decode_errors = msgspec.json.Decoder(tuple[LineError, ...]).decode


def batch_of(fields: Mapping[bytes, bytes], now_ms: int) -> Batch:
    """From the fields of its hash."""

    def text(name: str) -> str:
        return fields.get(name.encode(), b"").decode()

    def number(name: str) -> int:
        return int(fields.get(name.encode(), 0))

    return Batch(
        order=_decode_order(fields[b"order"]),
        status=text("status"),
        cause=text("cause"),
        created_at=number("created_at"),
        expires_at=number("expires_at"),
        stamps={name: number(name) for name in _STAMPS if name.encode() in fields},
        plan=text("plan"),
        num_planned=number("planned"),
        cursor=number("cursor"),
        counts={name: number(name) for name in ("total", "completed", "failed")},
        usage={name: number(name) for name in USAGE},
        errors=_decode_errors(fields.get(b"errors", b"[]")),
        model=text("model"),
        files={name: text(name) for name in ("output_file_id", "error_file_id") if name.encode() in fields},
        collected_ms=number("collected_ms"),
        now_ms=now_ms,
    )
