"""A Responses request in the words of a chat request, so that everything behind it is checked and run as chat is."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from api.errors import ApiError, bad_request
from api.pipeline.own_words import in_own_words
from api.pipeline.parse import UncheckedRequest
from api.pipeline.prepare import PreparedRequest, prepare_chat
from api.pipeline.responses_items import Item
from api.pipeline.responses_request import RawResponseRequest, ValidResponseRequest
from api.pipeline.responses_shown import shown_fields
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import ValidChatRequest, validate_chat
from api.settings import ApiSettings
from worker.protocol.job import ENDPOINT_PREFIXES

ENDPOINT = "responses"
# Not OpenAI's for this endpoint, but the same on every endpoint here.
_PASSED_ON = (
    "seed", "top_k", "min_p", "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "timeout", "chat_template_kwargs",
    "best_of", "length_penalty", "use_beam_search", "bad_words", "allowed_token_ids", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "structured_outputs", "guided_json", "guided_regex",
    "guided_choice", "guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern", "grammar", "echo",
    "prompt_logprobs", "typical_p", "priority", "add_generation_prompt", "continue_final_message", "chat_template",
    "documents", "prediction", "modalities", "audio", "web_search_options",
)  # fmt: skip
# How a field of the chat request is called here, for errors about it; the longest names first.
OWN_NAMES = (
    (r"(tools\[\d+\])\.function", r"\1"),
    (r"response_format\.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("max_completion_tokens", "max_output_tokens"),
    ("reasoning_effort", "reasoning.effort"),
    ("verbosity", "text.verbosity"),
    (r"tool_choice\.(function|allowed_tools)", "tool_choice"),
    ("messages.*", "input"),  # places in the messages are no places in the input: several items may make one message
)


def prepare_response(
    valid: ValidResponseRequest, items: Sequence[Item], model: ServedModel, tenant: str, settings: ApiSettings
) -> PreparedRequest:
    """`items` are the whole conversation, earlier turns first.

    Raises ApiError 400 when something is not served or does not fit.
    """
    try:
        prepared = _prepare_fitting(valid, tuple(items), model, tenant, settings)
    except ApiError as error:
        raise in_own_words(error, OWN_NAMES) from error
    job_id = f"{ENDPOINT_PREFIXES[ENDPOINT]}{prepared.job.pool}-{valid.id_digits}"
    view = replace(
        prepared.view,
        endpoint=ENDPOINT,
        is_background=valid.is_background,
        shown=shown_fields(valid.raw, prepared.view),
    )
    return PreparedRequest(replace(prepared.job, id=job_id), view)


def _prepare_fitting(
    valid: ValidResponseRequest, items: tuple[Item, ...], model: ServedModel, tenant: str, settings: ApiSettings
) -> PreparedRequest:
    """With truncation "auto" the oldest items are left out, as few as will do. How few is found by halving."""

    def prepared_from(first: int) -> PreparedRequest:
        return prepare_chat(chat_request(valid, items[first:]), model, tenant, settings)

    starts = _possible_starts(items) if valid.raw.truncation == "auto" else [0]
    found: dict[int, PreparedRequest] = {}
    low, high = 0, len(starts) - 1
    middle = 0  # first all of it: that is what mostly fits
    while True:
        try:
            found[middle] = prepared_from(starts[middle])
            high = middle
        except ApiError as error:
            if error.code != "context_length_exceeded" or middle == len(starts) - 1:
                raise
            low = middle + 1
        if low == high and high in found:
            return found[high]
        middle = (low + high) // 2


def _possible_starts(items: tuple[Item, ...]) -> list[int]:
    """Where a shortened conversation may begin: never with the output of a call that is left out."""
    return [i for i, item in enumerate(items) if i == 0 or item["type"] != "function_call_output"]


def chat_request(valid: ValidResponseRequest, items: Sequence[Item]) -> ValidChatRequest:
    raw = valid.raw
    messages = list(_messages(raw.instructions, items))
    if not messages:
        raise bad_request("'input' must hold at least one item.", "input")
    given: UncheckedRequest = {
        "model": raw.model,
        "messages": messages,
        "max_completion_tokens": raw.max_output_tokens,
        "temperature": raw.temperature,
        "top_p": raw.top_p,
        "stream": raw.stream,
        "parallel_tool_calls": raw.parallel_tool_calls,
        "service_tier": raw.service_tier,
        "reasoning_effort": raw.reasoning and raw.reasoning.effort,
        "verbosity": raw.text and raw.text.verbosity,
        "response_format": _response_format(raw),
        "tools": _tools(raw),
        "tool_choice": _tool_choice(raw.tool_choice),
        "logprobs": valid.wants_logprobs or None,
        "top_logprobs": (raw.top_logprobs or 0) if valid.wants_logprobs else None,
    }
    passed_on = {name: valid.unchecked[name] for name in _PASSED_ON if name in valid.unchecked}
    return validate_chat({name: value for name, value in (given | passed_on).items() if value is not None})


def _messages(instructions: str | None, items: Sequence[Item]) -> Iterator[dict[str, Any]]:
    """Chat messages. What one turn of the assistant consists of (reasoning, text, calls) becomes one message."""
    message: dict[str, Any] | None = None
    if instructions:
        message = {"role": "system", "content": instructions}
    for item in items:
        addition = _addition(item)
        if message is not None and _belong_together(message, addition):
            _join(message, addition)
            continue
        if message is not None:
            yield _whole(message)
        message = addition
    if message is not None:
        yield _whole(message)


def _whole(message: dict[str, Any]) -> dict[str, Any]:
    """Joined once: a request may have very many short items."""
    parts = message.pop("parts", None)
    return message if parts is None else {**message, "content": "\n\n".join(parts)}


def _addition(item: Item) -> dict[str, Any]:
    kind = item["type"]
    if kind == "function_call_output":
        return {"role": "tool", "content": _text_of(item["output"]), "tool_call_id": item["call_id"]}
    if kind == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        calls = [{"id": item["call_id"], "type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}
    if kind == "reasoning":
        texts = item.get("content") or item["summary"]
        return {"role": "assistant", "content": "", "reasoning_content": _text_of(texts)}
    return {"role": item["role"], "content": _text_of(item["content"])}


def _belong_together(message: dict[str, Any], addition: dict[str, Any]) -> bool:
    """Many templates take one system message only, at the beginning, and one message for a turn of the assistant."""
    if message["role"] == "system":
        return addition["role"] in ("system", "developer")
    if message["role"] != "assistant" or addition["role"] != "assistant" or "reasoning_content" in addition:
        return False
    return "tool_calls" in addition or ("tool_calls" not in message and not message["content"])


def _join(message: dict[str, Any], addition: dict[str, Any]) -> None:
    if message["role"] == "system":
        message.setdefault("parts", [message["content"]]).append(addition["content"])
        return
    message["content"] += addition["content"]
    if "tool_calls" in addition:
        message.setdefault("tool_calls", []).extend(addition["tool_calls"])


def _text_of(content: str | list[Item]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["refusal"] if part["type"] == "refusal" else part["text"] for part in content)


def _response_format(raw: RawResponseRequest) -> dict[str, Any] | None:
    """Here a schema stands in the format itself, there under a name of its own."""
    if raw.text is None or raw.text.format is None:
        return None
    given = raw.text.format
    if given.get("type") != "json_schema":
        return given
    if given.get("name") is not None and given.get("schema") is None:
        raise bad_request("'text.format.schema' is missing.", "text.format.schema")
    return {"type": "json_schema", "json_schema": {key: value for key, value in given.items() if key != "type"}}


def _tools(raw: RawResponseRequest) -> list[dict[str, Any]] | None:
    if raw.tools is None:
        return None
    for i, tool in enumerate(raw.tools):
        if tool.get("type") != "function":
            param = f"tools[{i}].type"
            message = f"Tools of type {str(tool.get('type'))[:60]!r} are not served here; use 'function'."
            raise bad_request(message, param, "unsupported_parameter")
    return [_nested(tool) for tool in raw.tools]


def _tool_choice(choice: str | dict[str, Any] | None) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "function":
        return _nested(choice)
    if choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        nested = [_nested(tool) for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else tools
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": nested}}
    message = f"A tool_choice of type {str(choice.get('type'))[:60]!r} is not served here."
    raise bad_request(message, "tool_choice.type", "unsupported_parameter")


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    return {"type": flat.get("type"), "function": {key: value for key, value in flat.items() if key != "type"}}
