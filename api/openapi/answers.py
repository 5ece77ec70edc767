"""The shapes of the answers to completions, and of the small ones. They describe; nothing is made of them."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType


class Error(Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorEnvelope(Struct):
    error: Error


class CachedTokens(Struct):
    cached_tokens: int


class ReasoningTokens(Struct):
    reasoning_tokens: int


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class CalledFunction(Struct):
    name: str
    arguments: str


class MadeCall(Struct):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Struct):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[MadeCall] | UnsetType = UNSET
    function_call: CalledFunction | UnsetType = UNSET


class ChatToken(Struct):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list["ChatAlternative"]


class ChatAlternative(Struct):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprobs(Struct):
    content: list[ChatToken]
    refusal: None


class ChatChoice(Struct):
    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls", "function_call"]


class ChatCompletion(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    service_tier: str | UnsetType = UNSET


class TextLogprobs(Struct):
    """Four parallel lists; of an echoed prompt's first token nothing is told."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class TextChoice(Struct):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length"]


class Completion(Struct):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    service_tier: str | UnsetType = UNSET


class Model(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int


class ModelList(Struct):
    object: Literal["list"]
    data: list[Model]


class Tokens(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DecodedText(Struct):
    prompt: str


class InputTokens(Struct):
    object: Literal["response.input_tokens"]
    input_tokens: int


class Alive(Struct):
    status: Literal["alive"]


class ReadyWorker(Struct):
    name: str
    step_age_s: float | None


class Ready(Struct):
    status: Literal["ready"]
    model: str
    workers: list[ReadyWorker]
    queue_depth: int


class Document(Struct):
    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]
