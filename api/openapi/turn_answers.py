"""The shapes of what the Responses API and Anthropic's Messages answer. They describe; nothing is made of them."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from api.openapi.answers import CachedTokens, ReasoningTokens


class ResponseTokensRead(CachedTokens):
    cache_write_tokens: int


class ResponseUsage(Struct):
    input_tokens: int
    input_tokens_details: ResponseTokensRead
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class ResponseItem(Struct):
    type: Literal["message", "function_call", "function_call_output", "reasoning"]
    id: str
    status: Literal["in_progress", "completed", "incomplete"] | UnsetType = UNSET
    role: Literal["assistant", "user", "system", "developer"] | UnsetType = UNSET
    content: list[dict[str, Any]] | UnsetType = UNSET
    summary: list[dict[str, Any]] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    output: str | list[dict[str, Any]] | UnsetType = UNSET


class ResponseFailure(Struct):
    code: Literal["invalid_prompt", "server_error"]
    message: str


class ResponseCut(Struct):
    reason: Literal["max_output_tokens"]


class Response(Struct):
    """Beside these it repeats the request's fields, with their defaults filled in."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    error: ResponseFailure | None
    incomplete_details: ResponseCut | None
    model: str
    output: list[ResponseItem]
    usage: ResponseUsage | None
    background: bool
    instructions: str | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    service_tier: str
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]


class ItemList(Struct):
    """A page of what the model was given."""

    object: Literal["list"]
    data: list[ResponseItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(Struct):
    id: str
    object: Literal["response"]
    deleted: bool


class MessagesError(Struct):
    type: str
    message: str


class MessagesErrorEnvelope(Struct):
    type: Literal["error"]
    error: MessagesError


class AnswerBlock(Struct):
    type: Literal["text", "tool_use", "thinking"]
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    input: Any = UNSET


class MessageUsage(Struct):
    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class AnswerMessage(Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[AnswerBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class CountedTokens(Struct):
    input_tokens: int
