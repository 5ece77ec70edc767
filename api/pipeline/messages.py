"""The messages of a chat request, checked."""

from typing import Any

import msgspec

from api.errors import bad_request

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class RawPart(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class RawFunctionCall(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class RawToolCall(msgspec.Struct):
    function: RawFunctionCall
    id: str | None = None
    type: str | None = None


class RawMessage(msgspec.Struct):
    role: str | None = None
    content: str | list[RawPart] | None = None
    name: str | None = None
    tool_calls: list[RawToolCall] | None = None
    function_call: RawFunctionCall | None = None  # what tool_calls were before there could be several
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    id: str | None
    name: str
    arguments: str | dict[str, Any]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: str  # one of ROLES, but for "function", which became "tool"
    content: str  # text parts are joined; "" where there is none, since many templates cannot add None to a string
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None


def check_messages(raw: list[RawMessage] | None) -> tuple[Message, ...]:
    """Raises ApiError 400 with a param such as ``messages[2].content``."""
    if raw is None:
        raise bad_request("You must provide the parameter 'messages'.", "messages")
    if not raw:
        raise bad_request("'messages' must hold at least one message.", "messages")
    return tuple(_check_message(message, f"messages[{i}]") for i, message in enumerate(raw))


def _check_message(raw: RawMessage, param: str) -> Message:
    if raw.role not in ROLES:
        problem = "is missing" if raw.role is None else f"{raw.role[:40]!r} is not one of {', '.join(ROLES)}"
        raise bad_request(f"The role of '{param}' {problem}.", f"{param}.role")
    calls = [_check_tool_call(call, f"{param}.tool_calls[{i}]") for i, call in enumerate(raw.tool_calls or ())]
    if raw.function_call is not None:
        calls.append(_check_tool_call(RawToolCall(raw.function_call, raw.function_call.name), f"{param}.function_call"))
    is_legacy = raw.role == "function"  # such results name their function, of which there is one call at most
    return Message(
        role="tool" if is_legacy else raw.role,
        content=_check_content(raw, f"{param}.content"),
        name=raw.name,
        tool_calls=tuple(calls),
        tool_call_id=raw.name if is_legacy else raw.tool_call_id,
        refusal=raw.refusal,
        reasoning_content=raw.reasoning_content,
    )


def _check_content(raw: RawMessage, param: str) -> str:
    if raw.content is None:
        if raw.role == "assistant" and (raw.tool_calls or raw.function_call):
            return ""
        if raw.role == "assistant" and raw.refusal:
            return raw.refusal
        raise bad_request(f"'{param}' is missing; only an assistant message with tool_calls goes without.", param)
    if isinstance(raw.content, str):
        return raw.content
    if not raw.content:
        raise bad_request(f"'{param}' must hold at least one part.", param)
    return "".join(_check_part(part, raw.role, f"{param}[{i}]") for i, part in enumerate(raw.content))


def _check_part(part: RawPart, role: str | None, param: str) -> str:
    if part.type == "refusal" and role == "assistant":
        if part.refusal is None:
            raise bad_request(f"'{param}' has no refusal.", f"{param}.refusal")
        return part.refusal
    if part.type != "text":
        problem = "is missing" if part.type is None else f"{part.type[:40]!r} is not supported"
        raise bad_request(f"The type of '{param}' {problem}; this model takes parts of type 'text'.", f"{param}.type")
    if part.text is None:
        raise bad_request(f"'{param}' has no text.", f"{param}.text")
    return part.text


def _check_tool_call(call: RawToolCall, param: str) -> ToolCall:
    if call.type not in (None, "function"):
        raise bad_request(f"'{param}' must be of type 'function'.", f"{param}.type")
    return ToolCall(call.id, call.function.name, call.function.arguments or "")
