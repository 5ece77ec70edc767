"""The shapes of what is told of batches. They describe; nothing is made of them."""

from typing import Literal

from msgspec import Struct

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]


class BatchLineError(Struct):
    code: str
    message: str
    line: int | None
    param: str | None


class BatchErrors(Struct):
    object: Literal["list"]
    data: list[BatchLineError]


class BatchRequestCounts(Struct):
    total: int
    completed: int
    failed: int


class BatchInputDetails(Struct):
    cached_tokens: int


class BatchOutputDetails(Struct):
    reasoning_tokens: int


class BatchUsage(Struct):
    input_tokens: int
    input_tokens_details: BatchInputDetails
    output_tokens: int
    output_tokens_details: BatchOutputDetails
    total_tokens: int


class Batch(Struct):
    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: BatchRequestCounts
    usage: BatchUsage
    metadata: dict[str, str] | None


class BatchList(Struct):
    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool
