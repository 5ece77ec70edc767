"""From unchecked JSON to a checked Responses request, as far as that goes without the model and the store.

What the answer shall be like is said in the words of a chat request (see `responses_chat`) and checked there.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from api.errors import bad_request, unsupported_parameter
from api.pipeline.parse import UncheckedRequest
from api.pipeline.raw import MAX_COUNT, convert
from api.pipeline.responses_items import Item, RawItem, check_input, refuse_unserved_items
from api.pipeline.unserved import ABSENT, EMPTY_LIST, EMPTY_OBJECT, Unserved, refuse_unserved
from worker.protocol.job import RANDOM_HEX_DIGITS

MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512
INCLUDE_LOGPROBS = "message.output_text.logprobs"
# The others name what only hosted tools and images add, and the reasoning, which is always told in full.
INCLUDABLE = (
    INCLUDE_LOGPROBS, "reasoning.encrypted_content", "file_search_call.results", "web_search_call.results",
    "web_search_call.action.sources", "message.input_image.image_url", "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)  # fmt: skip

_INSTEAD = "null (this endpoint has fields of its own for it)"
UNSERVED = {
    "conversation": ABSENT,
    "prompt": ABSENT,
    "context_management": EMPTY_LIST,
    "moderation": ABSENT,
    "access_programs": EMPTY_OBJECT,
    "image": EMPTY_OBJECT,
    "background_options": Unserved(
        "completion_window 'soonest'", lambda v: v in ({}, {"completion_window": "soonest"})
    ),
    "prompt_cache_options": Unserved(
        "mode 'implicit'", lambda v: isinstance(v, dict) and v.get("mode", "implicit") == "implicit" and len(v) <= 1
    ),
    "steer": ABSENT,
    # Other endpoints' words: taken for this one's they would be lost in silence.
    "n": Unserved("1", lambda value: value == 1),
    **dict.fromkeys(
        ("messages", "max_tokens", "max_completion_tokens", "response_format", "functions", "function_call",
         "reasoning_effort", "verbosity", "logprobs"),
        Unserved(_INSTEAD, lambda _: False),
    ),
}  # fmt: skip


class RawStreamOptions(msgspec.Struct):
    include_obfuscation: bool | None = None  # accepted: padding is optional for a server


class RawReasoning(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class RawText(msgspec.Struct):
    format: dict[str, Any] | None = None
    verbosity: str | None = None


ShortText = Annotated[str, Meta(max_length=512)]  # kept with the response


class RawResponseRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    input: str | list[RawItem] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    stream_options: RawStreamOptions | None = None
    background: bool | None = None
    store: bool | None = None
    generate: bool | None = None
    metadata: dict[str, str] | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    parallel_tool_calls: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: RawText | None = None
    reasoning: RawReasoning | None = None
    service_tier: str | None = None
    user: ShortText | None = None
    safety_identifier: ShortText | None = None
    prompt_cache_key: ShortText | None = None
    prompt_cache_retention: str | None = None


@dataclass(frozen=True)
class ValidResponseRequest:
    """`raw` is checked but for what its chat request says better; `unchecked` has the fields that only that knows."""

    raw: RawResponseRequest
    unchecked: UncheckedRequest
    model: str
    id_digits: str  # of the response to come: the ids of its items are made from it
    items: tuple[Item, ...]  # the request's own
    is_stored: bool
    is_background: bool

    @property
    def wants_logprobs(self) -> bool:
        return INCLUDE_LOGPROBS in (self.raw.include or ())


def validate_response(request: UncheckedRequest, id_digits: str) -> ValidResponseRequest:
    """Raises ApiError 400 that names the field."""
    assert len(id_digits) == RANDOM_HEX_DIGITS
    refuse_unserved_items(request.get("input"))
    raw = convert(request, RawResponseRequest)
    if not raw.model:
        raise bad_request("You must provide a model parameter.", "model")
    if not raw.input and raw.previous_response_id is None:
        raise bad_request("You must provide the parameter 'input' or 'previous_response_id'.", "input")
    refuse_unserved(request, UNSERVED)
    _check_options(raw)
    check_metadata(raw.metadata or {})
    items = check_input(raw.input, lambda prefix, place: f"{prefix}_{id_digits}-in-{place}")
    is_stored, is_background = raw.store is not False, bool(raw.background)
    return ValidResponseRequest(raw, request, raw.model, id_digits, items, is_stored, is_background)


def _check_options(raw: RawResponseRequest) -> None:
    if raw.stream_options is not None and not raw.stream:
        raise bad_request("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if raw.background and raw.store is False:
        raise bad_request("'background' needs 'store' to be true: the answer is fetched later.", "store")
    for i, name in enumerate(raw.include or ()):
        if name not in INCLUDABLE:
            raise bad_request(f"'include[{i}]' must be one of {', '.join(INCLUDABLE)}.", f"include[{i}]")
    reasoning = raw.reasoning or RawReasoning()
    for field in ("summary", "generate_summary"):
        if getattr(reasoning, field) is not None:
            raise unsupported_parameter(f"reasoning.{field}", "null")


def check_metadata(metadata: dict[str, str]) -> None:
    """Raises ApiError 400 for more than OpenAI allows."""
    if len(metadata) > MAX_METADATA:
        raise bad_request(f"'metadata' may hold at most {MAX_METADATA} pairs.", "metadata")
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY or len(value) > MAX_METADATA_VALUE:
            raise bad_request(
                f"The keys of 'metadata' may have {MAX_METADATA_KEY} characters and its values {MAX_METADATA_VALUE}.",
                f"metadata.{key[:MAX_METADATA_KEY]}",
            )
