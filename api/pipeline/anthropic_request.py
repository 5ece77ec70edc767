"""A request in Anthropic's words as a chat request, so that everything behind it is checked and run as chat is."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from api.errors import ApiError, bad_request, unsupported_parameter
from api.pipeline.own_words import in_own_words
from api.pipeline.parse import UncheckedRequest
from api.pipeline.raw import convert
from api.pipeline.validate import ValidChatRequest, validate_chat


class RawBlock(msgspec.Struct):
    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | list[RawBlock] | None" = None


class RawTurn(msgspec.Struct):
    role: Literal["user", "assistant"]
    content: str | list[RawBlock]


class RawAnthropicTool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any] | None = None
    description: str | None = None
    type: str | None = None
    strict: bool | None = None


class RawAnthropicChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class RawThinking(msgspec.Struct):
    type: Literal["enabled", "disabled", "adaptive"]


class RawOutputFormat(msgspec.Struct):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class RawOutputConfig(msgspec.Struct):
    format: RawOutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class RawCountRequest(msgspec.Struct, kw_only=True):
    """What decides how many tokens a request has."""

    model: str
    messages: list[RawTurn]
    system: str | list[RawBlock] | None = None
    tools: list[RawAnthropicTool] | None = None
    tool_choice: RawAnthropicChoice | None = None
    thinking: RawThinking | None = None
    output_config: RawOutputConfig | None = None


class RawMessagesRequest(RawCountRequest, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=1)]
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    stream: bool | None = None


UNSERVED = ("container", "mcp_servers", "context_management", "inference_geo", "speed")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
# How a field of the chat request is called here, for errors about it; the longest names first.
OWN_NAMES = (
    (r"(tools\[\d+\])\.function\.parameters", r"\1.input_schema"),
    (r"(tools\[\d+\])\.function", r"\1"),
    (r"response_format(\.json_schema)?", "output_config.format"),
    ("reasoning_effort", "thinking"),
    ("stop", "stop_sequences"),
)


def validate_messages(request: UncheckedRequest) -> ValidChatRequest:
    """Raises ApiError 400 that names the field."""
    raw = convert(request, RawMessagesRequest)
    for name in UNSERVED:
        if request.get(name) not in (None, [], {}):
            raise unsupported_parameter(name, "null")
    sampling = {
        "max_tokens": raw.max_tokens,
        "stop": raw.stop_sequences,
        "temperature": raw.temperature,
        "top_p": raw.top_p,
        "top_k": raw.top_k,
        "seed": request.get("seed"),  # not Anthropic's, but the same on every endpoint here
        "service_tier": "default" if raw.service_tier == "standard_only" else raw.service_tier,
        "stream": raw.stream,
    }
    return _as_chat({**_prompt(raw), **sampling})


def validate_count(request: UncheckedRequest) -> ValidChatRequest:
    """Raises ApiError 400 that names the field."""
    return _as_chat(_prompt(convert(request, RawCountRequest)))


def _as_chat(given: dict[str, Any]) -> ValidChatRequest:
    try:
        return validate_chat({name: value for name, value in given.items() if value is not None})
    except ApiError as error:
        raise in_own_words(error, OWN_NAMES) from error


def _prompt(raw: RawCountRequest) -> dict[str, Any]:
    if not raw.messages:
        raise bad_request("'messages' must hold at least one message.", "messages")
    choice = raw.tool_choice
    effort = raw.output_config and raw.output_config.effort
    return {
        "model": raw.model,
        "messages": [*_system(raw.system), *_messages(raw.messages)],
        # An assistant's turn at the end is the beginning of the answer.
        "continue_final_message": raw.messages[-1].role == "assistant" or None,
        "tools": [_tool(tool, f"tools[{i}]") for i, tool in enumerate(raw.tools or ())] or None,
        "tool_choice": _tool_choice(choice),
        "parallel_tool_calls": False if choice and choice.disable_parallel_tool_use else None,
        "reasoning_effort": "xhigh" if effort == "max" else effort or _thinking_effort(raw.thinking),
        "response_format": _response_format(raw.output_config),
    }


def _thinking_effort(thinking: RawThinking | None) -> str | None:
    if thinking is None or thinking.type == "adaptive":
        return None
    return "medium" if thinking.type == "enabled" else "none"


def _response_format(config: RawOutputConfig | None) -> dict[str, Any] | None:
    if config is None or config.format is None:
        return None
    schema = {"name": "answer", "schema": config.format.schema, "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _tool(tool: RawAnthropicTool, param: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        message = f"Tools of type {tool.type[:60]!r} are not served here; use one with an input_schema of its own."
        raise bad_request(message, f"{param}.type", "unsupported_parameter")
    if tool.input_schema is None:
        raise bad_request(f"'{param}.input_schema' is missing.", f"{param}.input_schema")
    function = {"name": tool.name, "parameters": tool.input_schema, "strict": tool.strict}
    return {"type": "function", "function": {**function, "description": tool.description}}


def _tool_choice(choice: RawAnthropicChoice | None) -> Any:
    if choice is None or choice.type != "tool":
        return choice and _CHOICES[choice.type]
    if choice.name is None:
        raise bad_request("'tool_choice.name' is missing.", "tool_choice.name")
    return {"type": "function", "function": {"name": choice.name}}


def _system(system: str | list[RawBlock] | None) -> list[dict[str, Any]]:
    if not system:
        return []
    text = (
        system if isinstance(system, str) else "".join(_text(block, f"system[{i}]") for i, block in enumerate(system))
    )
    return [{"role": "system", "content": text}]


def _messages(turns: list[RawTurn]) -> Iterator[dict[str, Any]]:
    for i, turn in enumerate(turns):
        param = f"messages[{i}].content"
        blocks = [RawBlock("text", turn.content)] if isinstance(turn.content, str) else turn.content
        if not blocks:
            raise bad_request(f"'{param}' must hold at least one block.", param)
        numbered = [(block, f"{param}[{j}]") for j, block in enumerate(blocks)]
        yield from _assistant(numbered) if turn.role == "assistant" else _user(numbered)


def _user(blocks: list[tuple[RawBlock, str]]) -> Iterator[dict[str, Any]]:
    """Results of tools are messages of their own; what else the turn says follows them."""
    texts = []
    for block, param in blocks:
        if block.type == "tool_result":
            yield {"role": "tool", "content": _result(block, param), "tool_call_id": block.tool_use_id}
        else:
            texts.append(_text(block, param))
    if texts:
        yield {"role": "user", "content": "".join(texts)}


def _assistant(blocks: list[tuple[RawBlock, str]]) -> Iterator[dict[str, Any]]:
    calls, texts, thoughts = [], [], []
    for block, param in blocks:
        if block.type == "tool_use":
            if block.name is None:
                raise bad_request(f"'{param}.name' is missing.", f"{param}.name")
            arguments = msgspec.json.encode(block.input or {}).decode()
            calls.append({"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}})
        elif block.type in ("thinking", "redacted_thinking"):
            thoughts.append(block.thinking or "")
        else:
            texts.append(_text(block, param))
    yield {
        "role": "assistant",
        "content": "".join(texts),
        "tool_calls": calls or None,
        "reasoning_content": "".join(thoughts) or None,
    }


def _result(block: RawBlock, param: str) -> str:
    if block.tool_use_id is None:
        raise bad_request(f"'{param}.tool_use_id' is missing.", f"{param}.tool_use_id")
    if block.content is None or isinstance(block.content, str):
        return block.content or ""
    return "".join(_text(part, f"{param}.content[{i}]") for i, part in enumerate(block.content))


def _text(block: RawBlock, param: str) -> str:
    if block.type != "text":
        message = f"'{param}' is of type {block.type[:40]!r}; this model takes text."
        raise bad_request(message, f"{param}.type", "unsupported_parameter")
    if block.text is None:
        raise bad_request(f"'{param}.text' is missing.", f"{param}.text")
    return block.text
