"""From unchecked JSON to a checked request: types, ranges and the shape of messages and prompts.

The structs named Raw hold the right types only; what leaves this module as a Valid request has been checked in full,
as far as that goes without the model. null means absent everywhere, and unknown fields are ignored.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from api.errors import ApiError, bad_request
from api.pipeline.messages import Message, RawMessage, check_messages
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prompts import Prompt, check_prompts
from api.pipeline.unserved import CHAT, COMPLETIONS, refuse_unserved

MAX_STOPS = 4
MAX_STOP_CHARS = 4096
SEED_RANGE = range(-(2**63), 2**64)

RawT = TypeVar("RawT", bound=msgspec.Struct)


class RawStreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # accepted: padding is optional for a server


class RawRequest(msgspec.Struct, kw_only=True):
    """The fields both endpoints share."""

    model: str | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: RawStreamOptions | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None


class RawChatRequest(RawRequest, kw_only=True):
    messages: list[RawMessage] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None


class RawCompletionRequest(RawRequest, kw_only=True):
    prompt: str | list[Any] | None = None


@dataclass(frozen=True)
class Generation:
    """What a checked request says about the answer; None where it leaves the choice to the server."""

    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    stop: tuple[str, ...]
    seed: int | None
    timeout_s: float | None
    stream: bool
    include_usage: bool


@dataclass(frozen=True)
class ValidChatRequest:
    model: str
    messages: tuple[Message, ...]
    generation: Generation


@dataclass(frozen=True)
class ValidCompletionRequest:
    model: str
    prompts: tuple[Prompt, ...]
    generation: Generation


def validate_chat(request: UncheckedRequest) -> ValidChatRequest:
    """Raises ApiError 400 that names the field."""
    raw = _convert(request, RawChatRequest)
    model = _required_model(raw)
    messages = check_messages(raw.messages)
    limits = [limit for limit in (raw.max_tokens, raw.max_completion_tokens) if limit is not None]
    generation = _check_generation(raw, min(limits, default=None))
    refuse_unserved(request, CHAT)
    return ValidChatRequest(model, messages, generation)


def validate_completion(request: UncheckedRequest) -> ValidCompletionRequest:
    """Raises ApiError 400 that names the field."""
    raw = _convert(request, RawCompletionRequest)
    model = _required_model(raw)
    prompts = check_prompts(raw.prompt)
    generation = _check_generation(raw, raw.max_tokens)
    refuse_unserved(request, COMPLETIONS)
    return ValidCompletionRequest(model, prompts, generation)


def _required_model(raw: RawRequest) -> str:
    if not raw.model:
        raise bad_request("You must provide a model parameter.", "model")
    return raw.model


def _check_generation(raw: RawRequest, max_tokens: int | None) -> Generation:
    if raw.stream_options is not None and not raw.stream:
        raise bad_request("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if raw.seed is not None and raw.seed not in SEED_RANGE:
        raise bad_request("'seed' must be an integer from -2**63 to 2**64 - 1.", "seed")
    return Generation(
        max_tokens=max_tokens,
        temperature=raw.temperature,
        top_p=raw.top_p,
        top_k=raw.top_k,
        min_p=raw.min_p,
        stop=_check_stop(raw.stop),
        seed=raw.seed,
        timeout_s=raw.timeout,
        stream=bool(raw.stream),
        include_usage=raw.stream_options is not None and bool(raw.stream_options.include_usage),
    )


def _check_stop(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    if isinstance(stop, str):
        _check_stop_string(stop, "stop")
        return (stop,)
    if len(stop) > MAX_STOPS:
        raise bad_request(f"'stop' may hold at most {MAX_STOPS} strings, but it holds {len(stop)}.", "stop")
    for i, text in enumerate(stop):
        _check_stop_string(text, f"stop[{i}]")
    return tuple(dict.fromkeys(stop))


def _check_stop_string(text: str, param: str) -> None:
    if not text:
        raise bad_request(f"'{param}' must not be an empty string.", param)
    if len(text) > MAX_STOP_CHARS:
        raise bad_request(f"'{param}' is longer than {MAX_STOP_CHARS} characters.", param)


def _convert(request: UncheckedRequest, kind: type[RawT]) -> RawT:
    try:
        return msgspec.convert(request, kind)
    except msgspec.ValidationError as error:
        raise _type_error(str(error)) from None


_PLACE = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)


def _type_error(text: str) -> ApiError:
    """msgspec says ``Expected `str`, got `int` - at `$.messages[0].role` ``."""
    found = _PLACE.fullmatch(text)
    problem, param = (found[1], found[2]) if found else (text, "")
    return bad_request(f"Invalid value for '{param}': {problem.replace('`', '')}.", param or None)
