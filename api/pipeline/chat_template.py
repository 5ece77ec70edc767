"""From checked messages to the text a model was trained on."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace
from transformers import TokenizersBackend

from api.errors import ApiError, bad_request
from api.pipeline.messages import Message, ToolCall

TemplateMessage = dict[str, Any]

_TAKEN = frozenset(inspect.signature(TokenizersBackend.apply_chat_template).parameters) | {"messages"}


@dataclass(frozen=True)
class TemplateOptions:
    """What a request says about the rendering of its messages."""

    add_generation_prompt: bool = True  # open the assistant's turn
    continue_final_message: bool = False  # leave the last message open, so that the answer goes on with it
    variables: Mapping[str, Any] = field(default_factory=dict)  # of the template, beside those that every one has
    tools: tuple[dict[str, Any], ...] = ()  # functions that the template tells the model of

    def changed(self, change: Callable[[str], str]) -> "TemplateOptions":
        """With `change` applied to every string that a client may choose freely."""
        variables = {name: _change_strings(value, change) for name, value in self.variables.items()}
        tools = tuple(_change_strings(tool, change) for tool in self.tools)
        return dataclasses.replace(self, variables=variables, tools=tools)


USUAL = TemplateOptions()


def check_template_options(
    add_generation_prompt: bool | None, continue_final_message: bool | None, variables: dict[str, Any] | None
) -> TemplateOptions:
    """Raises ApiError 400. A message that is continued needs no new turn, unless the request asks for both."""
    does_continue = bool(continue_final_message)
    opens_turn = not does_continue if add_generation_prompt is None else add_generation_prompt
    if does_continue and opens_turn:
        message = "'continue_final_message' and 'add_generation_prompt' cannot both be true."
        raise bad_request(message, "continue_final_message")
    for name in variables or ():
        if name in _TAKEN or name.endswith("_token"):
            param = f"chat_template_kwargs.{name}"
            raise bad_request(f"'{param}' is not a variable of the template that a request may set.", param)
    return TemplateOptions(opens_turn, does_continue, variables or {})


class ChatTemplate:
    """A tokenizer's chat template, compiled once and run in transformers' sandbox."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is a transformers tokenizer."""
        self._tokenizer = tokenizer

    @property
    def source(self) -> str:
        """The Jinja text, "" for a model without a template. Some have another template beside it, for functions."""
        if not self._tokenizer.chat_template:
            return ""
        plain: str = self._tokenizer.get_chat_template()
        with_tools: str = self._tokenizer.get_chat_template(tools=[])
        return plain if with_tools == plain else f"{plain}\n{with_tools}"

    @property
    def takes_system(self) -> bool:
        """Whether a system message reaches the model: some templates refuse it, some drop it."""
        word = "instructions"
        try:
            return word in self.render([Message(role="system", content=word), Message(role="user", content="?")])
        except ApiError:
            return False

    def render(self, messages: Sequence[Message], options: TemplateOptions = USUAL) -> str:
        """The conversation up to where the model is to go on. Raises ApiError 400."""
        if not self._tokenizer.chat_template:
            raise bad_request("This model has no chat template; use /v1/completions.", "messages")
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                [_template_message(message) for message in messages],
                tools=list(options.tools) or None,
                tokenize=False,
                add_generation_prompt=options.add_generation_prompt,
                continue_final_message=options.continue_final_message,
                **options.variables,
            )
        except Exception as error:  # a template may raise anything: its own refusals, type errors, deep recursion
            raise bad_request(f"The model's chat template refused the messages: {error}", "messages") from error
        return rendered


def user_texts(messages: Sequence[Message], options: TemplateOptions = USUAL) -> list[str]:
    """Every string in a request that a client may choose freely."""
    texts: list[str] = []

    def record(text: str) -> str:
        texts.append(text)
        return text

    for message in messages:
        change_user_texts(message, record)
    options.changed(record)
    return texts


def change_user_texts(message: Message, change: Callable[[str], str]) -> Message:
    """The message with `change` applied to every string that a client may choose freely: all but the role."""

    def optional(text: str | None) -> str | None:
        return None if text is None else change(text)

    return replace(
        message,
        content=change(message.content),
        name=optional(message.name),
        tool_call_id=optional(message.tool_call_id),
        refusal=optional(message.refusal),
        reasoning_content=optional(message.reasoning_content),
        tool_calls=tuple(
            ToolCall(optional(call.id), change(call.name), _change_strings(call.arguments, change))
            for call in message.tool_calls
        ),
    )


def _change_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _change_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_change_strings(item, change) for item in value]
    return value


def _template_message(message: Message) -> TemplateMessage:
    """As templates expect it, with absent fields left out."""
    fields: TemplateMessage = {
        "role": message.role,
        "content": message.content,
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "refusal": message.refusal,
        "reasoning_content": message.reasoning_content,
        "tool_calls": [_template_tool_call(call) for call in message.tool_calls] or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _template_tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"type": "function", "function": function} | ({} if call.id is None else {"id": call.id})
