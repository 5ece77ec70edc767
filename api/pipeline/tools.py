"""The functions that a chat request lets the model call, checked.

``functions`` and ``function_call``, which came before ``tools``, mean the same with one call at most.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from api.errors import ApiError, bad_request, unsupported_parameter
from api.pipeline.json_grammar import MAX_DEPTH, is_deeper_than

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


class RawFunction(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class RawTool(msgspec.Struct):
    type: str | None = None
    function: RawFunction | None = None


class RawAllowedTools(msgspec.Struct):
    mode: Literal["auto", "required"] = "auto"
    tools: list[RawTool] = []


class RawToolChoice(msgspec.Struct):
    type: str | None = None
    function: RawFunction | None = None
    allowed_tools: RawAllowedTools | None = None


@dataclass(frozen=True)
class Tool:
    name: str
    description: str | None
    parameters: dict[str, Any]  # a JSON schema of type object
    is_strict: bool  # a schema that cannot be followed in full is refused
    param: str  # where the request says so, for error messages

    def shown(self) -> dict[str, Any]:
        """As chat templates expect it."""
        described = {} if self.description is None else {"description": self.description}
        return {"type": "function", "function": {"name": self.name, **described, "parameters": self.parameters}}


@dataclass(frozen=True)
class ToolUse:
    """Which functions the model is told of, and what it may and must do with them."""

    told: tuple[Tool, ...] = ()
    callable: tuple[Tool, ...] = ()
    is_required: bool = False  # the answer is one call or more
    is_parallel: bool = True  # several calls in one answer
    is_legacy: bool = False  # the call is told as a `function_call`


NO_TOOLS = ToolUse()

Choice = str | RawToolChoice | None


def check_tools(tools: list[RawTool] | None, choice: Choice, is_parallel: bool | None) -> ToolUse:
    """Raises ApiError 400 that names the field."""
    checked = unique(tuple(_check_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools or ())), "tools")
    use = choose(checked, choice, "tool_choice")
    return use if is_parallel is None else replace(use, is_parallel=use.is_parallel and is_parallel)


def check_functions(functions: list[RawFunction] | None, choice: str | RawFunction | None) -> ToolUse:
    """The older form. Raises ApiError 400 that names the field."""
    places = enumerate(functions or ())
    checked = unique(tuple(check_function(function, f"functions[{i}]") for i, function in places), "functions")
    if choice == "required":
        raise bad_request("'function_call' must be none, auto or the name of a function.", "function_call")
    newer = RawToolChoice("function", choice) if isinstance(choice, RawFunction) else choice
    return replace(choose(checked, newer, "function_call"), is_parallel=False, is_legacy=True)


def _check_tool(raw: RawTool, param: str) -> Tool:
    if raw.type != "function":
        raise ApiError(
            400,
            f"'{param}' is of a type that is not supported; only tools of type 'function' are.",
            param=f"{param}.type",
            code=None if raw.type is None else "unsupported_parameter",
        )
    if raw.function is None:
        raise bad_request(f"'{param}.function' is missing.", f"{param}.function")
    return check_function(raw.function, f"{param}.function")


def check_function(raw: RawFunction, param: str) -> Tool:
    """`param` is where the request has it. Raises ApiError 400."""
    if raw.name is None or not _NAME.fullmatch(raw.name):
        problem = "is missing" if raw.name is None else "must be 1 to 64 letters, digits, underscores and dashes"
        raise bad_request(f"'{param}.name' {problem}.", f"{param}.name")
    parameters = raw.parameters or _NO_ARGUMENTS
    if parameters.get("type", "object") != "object":
        raise bad_request(f"'{param}.parameters' must be a schema of type 'object'.", f"{param}.parameters")
    if is_deeper_than(parameters, MAX_DEPTH):
        raise bad_request(f"'{param}.parameters' has more than {MAX_DEPTH} levels.", f"{param}.parameters")
    return Tool(raw.name, raw.description, {"type": "object", **parameters}, bool(raw.strict), param)


def unique(tools: tuple[Tool, ...], param: str) -> tuple[Tool, ...]:
    """Raises ApiError 400 for too many, or for two of the same name."""
    if len(tools) > MAX_TOOLS:
        raise bad_request(f"'{param}' may hold at most {MAX_TOOLS} functions, but it holds {len(tools)}.", param)
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise bad_request(f"'{tool.param}.name' is the name of another function too.", f"{tool.param}.name")
        names.add(tool.name)
    return tools


def choose(tools: tuple[Tool, ...], choice: Choice, param: str) -> ToolUse:
    """Raises ApiError 400 that names `param`."""
    if choice is None or choice == "auto":
        return ToolUse(tools, tools)
    if choice == "none":
        return NO_TOOLS
    if not tools:
        raise bad_request(f"'{param}' is only allowed when functions are given.", param)
    if choice == "required":
        return ToolUse(tools, tools, is_required=True)
    if isinstance(choice, str):
        raise bad_request(f"'{param}' must be none, auto, required or an object, not {choice[:40]!r}.", param)
    if choice.type == "allowed_tools":
        return _allowed(tools, choice.allowed_tools or RawAllowedTools(), param)
    return ToolUse(tools, (_named(tools, choice, param),), is_required=True, is_parallel=False)


def _allowed(tools: tuple[Tool, ...], allowed: RawAllowedTools, param: str) -> ToolUse:
    """The model is told of these alone, so that it calls no other one."""
    if not allowed.tools:
        raise bad_request(f"'{param}.allowed_tools' must name at least one function.", param)
    names = {_named(tools, tool, param).name for tool in allowed.tools}
    kept = tuple(tool for tool in tools if tool.name in names)
    return ToolUse(kept, kept, is_required=allowed.mode == "required")


def _named(tools: tuple[Tool, ...], choice: RawTool | RawToolChoice, param: str) -> Tool:
    if choice.type not in (None, "function"):
        raise unsupported_parameter(param, "none, auto, required, allowed_tools or a function")
    if choice.function is None or choice.function.name is None:
        raise bad_request(f"'{param}' does not name its function.", param)
    found = next((tool for tool in tools if tool.name == choice.function.name), None)
    if found is None:
        name = choice.function.name[:64]
        raise bad_request(f"'{param}' names the function {name!r}, which is not among those given.", param)
    return found
