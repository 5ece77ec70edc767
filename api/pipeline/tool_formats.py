"""How families of models are told of functions and write calls: the prompt's side, and grammars of calls.

The side that reads answers is in the relay, under the name `reader`.
"""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby

from msgspec.structs import replace

from api.pipeline.messages import Message
from api.pipeline.tools import Tool

_OTHER_TAGGED = ("<function=", "<arg_key>")  # formats that write arguments otherwise, between the same tags

Marker = Callable[[str], str]  # how a grammar writes one of the format's markers, which may be a token of its own


class ToolFormat(ABC):
    reader: str  # see AnswerFormat.tools
    markers: tuple[str, ...] = ()  # that may be tokens of their own
    is_in_template = True  # the chat template itself tells of functions

    def conversation(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:  # noqa: ARG002
        """The messages as the model's template takes them."""
        return list(messages)

    @abstractmethod
    def calls(self, tools: Sequence[Tool], is_parallel: bool, marker: Marker) -> str:
        """Lark rules of which `calls` is one or more calls; `arguments_0` and so on are the tools' arguments."""


class TaggedFormat(ToolFormat):
    """Hermes, Qwen and others: ``<tool_call>`` around ``{"name": ..., "arguments": ...}``."""

    reader = "tagged"
    markers = ("<tool_call>", "</tool_call>")

    def calls(self, tools: Sequence[Tool], is_parallel: bool, marker: Marker) -> str:
        begin, end = map(marker, self.markers)
        more = '("\\n" call)*' if is_parallel else ""
        return f'calls: call {more}\ncall: {begin} "\\n" tool "\\n" {end}\n' + _json_calls(tools, "arguments")


class DescribedFormat(TaggedFormat):
    """For templates that know nothing of functions: all is told in ordinary messages."""

    is_in_template = False

    def __init__(self, takes_system: bool) -> None:
        """`takes_system`: the template has a place for system messages; else the first user message has to do."""
        self._takes_system = takes_system

    def conversation(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
        told = _as_texts(messages)
        if not tools:
            return told
        description = _described(tools)
        role = "system" if self._takes_system else "user"
        if told and told[0].role == role:
            return [replace(told[0], content=_joined(told[0].content, description)), *told[1:]]
        return [Message(role=role, content=description), *told]


class BareFormat(ToolFormat):
    """Llama 3: the whole answer is ``{"name": ..., "parameters": ...}``."""

    reader = "bare"

    def conversation(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:  # noqa: ARG002
        """The template takes one call a message, so each of several becomes one, its result right after it."""
        told: list[Message] = []
        results = {message.tool_call_id: message for message in messages if message.role == "tool"}
        moved: set[str | None] = set()
        for message in messages:
            if len(message.tool_calls) < 2:
                told += [] if message.role == "tool" and message.tool_call_id in moved else [message]
                continue
            for call in message.tool_calls:
                told.append(replace(message, tool_calls=(call,)))
                if call.id is not None and call.id in results and call.id not in moved:
                    told.append(results[call.id])
                    moved.add(call.id)
        return told

    def calls(self, tools: Sequence[Tool], is_parallel: bool, marker: Marker) -> str:  # noqa: ARG002
        return "calls: tool\n" + _json_calls(tools, "parameters")


class MistralFormat(ToolFormat):
    """``[TOOL_CALLS]`` before a JSON array of calls; newer ones before each ``name[ARGS]{...}``."""

    reader = "mistral"
    markers = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")

    def __init__(self, is_newer: bool) -> None:
        self._is_newer = is_newer

    def conversation(self, messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:  # noqa: ARG002
        """Templates take no other ids than those of nine letters and digits."""
        return [
            replace(
                message,
                tool_call_id=None if message.tool_call_id is None else _nine(message.tool_call_id),
                tool_calls=tuple(replace(call, id=_nine(call.id or call.name)) for call in message.tool_calls),
            )
            for message in messages
        ]

    def calls(self, tools: Sequence[Tool], is_parallel: bool, marker: Marker) -> str:
        begin = marker("[TOOL_CALLS]")
        if not self._is_newer:
            more = '(", " tool)*' if is_parallel else ""
            return f'calls: {begin} " "? "[" tool {more} "]"\n' + _json_calls(tools, "arguments")
        arguments = marker("[ARGS]")
        names = [f"{_quoted(tool.name)} {arguments} arguments_{i}" for i, tool in enumerate(tools)]
        return f"calls: call{'+' if is_parallel else ''}\ncall: {begin} ({' | '.join(names)})\n"


def tool_format_of(template: str, takes_system: bool, reads_calls: bool = False) -> ToolFormat:
    """Told from the text of the chat template.

    `reads_calls`: what the model writes is read in its own way, so the chat template may tell of functions in its own
    way too. What a grammar holds is tagged then.
    """
    if "[TOOL_CALLS]" in template:
        return MistralFormat(is_newer="[ARGS]" in template)
    if "tools" in template and "<tool_call>" in template and not any(other in template for other in _OTHER_TAGGED):
        return TaggedFormat()
    if "tools" in template and "<|start_header_id|>" in template and '"parameters"' in template:
        return BareFormat()
    if "tools" in template and reads_calls:
        return TaggedFormat()
    return DescribedFormat(takes_system)


def _json_calls(tools: Sequence[Tool], key: str) -> str:
    head, middle = '{"name": ', f', "{key}": '
    names = [f'{_quoted(head + json.dumps(tool.name) + middle)} arguments_{i} "}}"' for i, tool in enumerate(tools)]
    return f"tool: {' | '.join(names)}\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _as_texts(messages: Sequence[Message]) -> list[Message]:
    """The results of one turn become one message: many templates want the roles to take turns."""
    told: list[Message] = []
    for is_result, group in groupby(messages, lambda message: message.role == "tool"):
        if is_result:
            results = (f"<tool_response>\n{message.content}\n</tool_response>" for message in group)
            told.append(Message(role="user", content="\n".join(results)))
        else:
            told += map(_with_calls_as_text, group)
    return told


def _with_calls_as_text(message: Message) -> Message:
    calls = (
        f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.arguments}, ensure_ascii=False)}\n</tool_call>"
        for call in message.tool_calls
    )
    return replace(message, content="\n".join(filter(None, (message.content, *calls))), tool_calls=())


def _described(tools: Sequence[Tool]) -> str:
    functions = "\n".join(json.dumps(tool.shown(), ensure_ascii=False) for tool in tools)
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{functions}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n"
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _nine(call_id: str) -> str:
    is_fit = re.fullmatch(r"[a-zA-Z0-9]{9}", call_id)
    return call_id if is_fit else hashlib.sha256(call_id.encode()).hexdigest()[:9]
