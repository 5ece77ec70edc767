"""Which splitter reads which answer."""

from collections.abc import Callable

from api.relay.answers.parts import Part, PlainSplitter, Splitter, ToolCallArguments, ToolCallBegin
from api.relay.answers.reading import Reader, ReadingSplitter, read_content
from api.relay.answers.template_splitter import TemplateSplitter
from api.relay.answers.thinking import thinking_reader
from api.relay.answers.tool_formats import bare_reader, read_mistral, read_tagged
from api.stream_view import AnswerFormat

TOOL_READERS: dict[str, Callable[[AnswerFormat], Reader]] = {
    "": lambda _: read_content,
    "tagged": lambda _: read_tagged,
    "mistral": lambda _: read_mistral,
    "bare": lambda answer: bare_reader(answer.tool_names),
}


def splitter_for(answer: AnswerFormat) -> Splitter:
    splitter = _reading(answer)
    return FirstCallSplitter(splitter) if answer.is_single else splitter


class FirstCallSplitter:
    """Leaves out all calls but the first: no grammar holds a model to one where it may choose not to call at all."""

    def __init__(self, inner: Splitter) -> None:
        self._inner = inner

    @property
    def is_thinking(self) -> bool:
        return self._inner.is_thinking

    def feed(self, text: str) -> list[Part]:
        return self._without_later_calls(self._inner.feed(text))

    def close(self) -> list[Part]:
        return self._without_later_calls(self._inner.close())

    @staticmethod
    def _without_later_calls(parts: list[Part]) -> list[Part]:
        return [part for part in parts if not (isinstance(part, ToolCallBegin | ToolCallArguments) and part.index > 0)]


def _reading(answer: AnswerFormat) -> Splitter:
    if answer.template:
        return TemplateSplitter(answer)
    if not (answer.reasoning or answer.tools):
        return PlainSplitter()
    tools = TOOL_READERS[answer.tools](answer)
    if not answer.reasoning:
        return ReadingSplitter(tools)
    return ReadingSplitter(thinking_reader(is_open=answer.reasoning == "open"), tools)
