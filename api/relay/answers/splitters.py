"""Which splitter reads which answer."""

from collections.abc import Callable

from api.relay.answers.parts import PlainSplitter, Splitter
from api.relay.answers.reading import Reader, ReadingSplitter, read_content
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
    if not (answer.reasoning or answer.tools):
        return PlainSplitter()
    tools = TOOL_READERS[answer.tools](answer)
    if not answer.reasoning:
        return ReadingSplitter(tools)
    return ReadingSplitter(thinking_reader(is_open=answer.reasoning == "open"), tools)
