"""The bodies of requests with the right types, and nothing else known of them.

null means absent everywhere, and unknown fields are ignored.
"""

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from api.errors import ApiError, bad_request
from api.pipeline.messages import RawMessage
from api.pipeline.parse import UncheckedRequest
from api.pipeline.reasoning import Effort
from api.pipeline.structured_output import RawResponseFormat, RawStructuredOutputs
from api.pipeline.tools import RawFunction, RawTool, RawToolChoice

RawT = TypeVar("RawT", bound=msgspec.Struct)

TokenId = Annotated[int, Meta(ge=0)]  # how large it may be depends on the model
MAX_COUNT = 2**53  # of tokens: far more than any context, and every client can write it
Penalty = Annotated[float, Meta(ge=-2, le=2)]
ServiceTier = Literal["auto", "default", "priority", "fast", "scale", "flex", "batch"]


class RawStreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # accepted: padding is optional for a server


class RawRequest(msgspec.Struct, kw_only=True):
    """The fields both endpoints share."""

    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None = None
    response_format: RawResponseFormat | None = None
    structured_outputs: RawStructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    seed: int | None = None
    service_tier: ServiceTier | None = None
    stream: bool | None = None
    stream_options: RawStreamOptions | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None


class RawChatRequest(RawRequest, kw_only=True):
    messages: list[RawMessage] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[RawTool] | None = None
    tool_choice: str | RawToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[RawFunction] | None = None
    function_call: str | RawFunction | None = None
    reasoning_effort: Effort | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class RawCompletionRequest(RawRequest, kw_only=True):
    prompt: str | list[Any] | None = None
    suffix: str | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    best_of: Annotated[int, Meta(ge=1)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool | None = None


def convert(request: UncheckedRequest, kind: type[RawT]) -> RawT:
    """Raises ApiError 400 that names the field of the wrong type."""
    try:
        return msgspec.convert(request, kind)
    except RecursionError:
        raise bad_request("The JSON of the request body is nested too deeply.") from None
    except msgspec.ValidationError as error:
        raise _type_error(str(error)) from None


_PLACE = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)


def _type_error(text: str) -> ApiError:
    """msgspec says ``Expected `str`, got `int` - at `$.messages[0].role` ``."""
    found = _PLACE.fullmatch(text)
    problem, param = (found[1], found[2].removesuffix("[...]")) if found else (text, "")
    return bad_request(f"Invalid value for '{param}': {problem.replace('`', '')}.", param or None)
