"""Which splitter reads which answer."""

from collections.abc import Callable

from api.relay.answers.parts import PlainSplitter, Splitter
from api.stream_view import AnswerFormat

TOOL_FORMATS: dict[str, Callable[[], Splitter]] = {"": PlainSplitter}


def splitter_for(answer: AnswerFormat) -> Splitter:
    return TOOL_FORMATS[answer.tools]()
