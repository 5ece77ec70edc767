"""What of a Responses request its answer repeats."""

from typing import Any

import msgspec

from api.errors import bad_request
from api.pipeline.responses_request import RawResponseRequest, RawText
from api.stream_view import StreamView


def shown_fields(raw: RawResponseRequest, view: StreamView) -> dict[str, Any]:
    """The fields of a Response that are known before it is generated, defaults filled in. Raises ApiError 400."""
    for param in ("tools", "tool_choice", "text"):
        _check_kept(getattr(raw, param), param)
    return {
        "background": bool(raw.background),
        "instructions": raw.instructions,
        "max_output_tokens": raw.max_output_tokens,
        "max_tool_calls": raw.max_tool_calls,
        "metadata": raw.metadata or {},
        "parallel_tool_calls": raw.parallel_tool_calls is not False,
        "previous_response_id": raw.previous_response_id,
        "prompt_cache_key": raw.prompt_cache_key,
        "reasoning": {"effort": raw.reasoning and raw.reasoning.effort, "summary": None},
        "safety_identifier": raw.safety_identifier,
        "service_tier": view.service_tier or "default",
        "temperature": 1.0 if raw.temperature is None else raw.temperature,
        "text": _shown_text(raw.text or RawText()),
        "tool_choice": raw.tool_choice or "auto",
        "tools": [_shown_tool(tool) for tool in raw.tools or ()],
        "top_logprobs": raw.top_logprobs or 0,
        "top_p": 1.0 if raw.top_p is None else raw.top_p,
        "truncation": raw.truncation or "disabled",
        "user": raw.user,
    }


def _check_kept(value: Any, param: str) -> None:
    """Schemas may hold numbers that JSON knows and that cannot be kept."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError as error:
        raise bad_request(f"'{param}' holds a number that is too large.", param) from error
    except RecursionError as error:
        raise bad_request(f"'{param}' is nested too deeply.", param) from error


def _shown_text(text: RawText) -> dict[str, Any]:
    return {"format": text.format or {"type": "text"}, "verbosity": text.verbosity or "medium"}


def _shown_tool(tool: dict[str, Any]) -> dict[str, Any]:
    defaults = {"type": "function", "description": None, "parameters": None, "strict": None}
    return defaults | {key: tool[key] for key in ("name", *defaults) if key in tool}
