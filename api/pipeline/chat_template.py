"""From checked messages to the text a model was trained on."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from api.errors import bad_request
from api.pipeline.messages import Message, ToolCall

TemplateMessage = dict[str, Any]


class ChatTemplate:
    """A tokenizer's chat template, compiled once and run in transformers' sandbox."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is a transformers tokenizer."""
        self._tokenizer = tokenizer

    @property
    def source(self) -> str:
        """The Jinja text, "" for a model without a template."""
        return self._tokenizer.get_chat_template() if self._tokenizer.chat_template else ""

    def render(self, messages: Sequence[Message]) -> str:
        """The conversation followed by the opening of the assistant's turn. Raises ApiError 400."""
        if not self._tokenizer.chat_template:
            raise bad_request("This model has no chat template; use /v1/completions.", "messages")
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                [_template_message(message) for message in messages], tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # a template may raise anything: its own refusals, type errors, deep recursion
            raise bad_request(f"The model's chat template refused the messages: {error}", "messages") from error
        return rendered


def user_texts(messages: Sequence[Message]) -> list[str]:
    """Every string in the messages that a client may choose freely."""
    texts: list[str] = []

    def record(text: str) -> str:
        texts.append(text)
        return text

    for message in messages:
        change_user_texts(message, record)
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
