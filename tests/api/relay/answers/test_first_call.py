"""Where one call at most is wanted, calls after the first are left out, however the text is cut."""

import pytest

from api.relay.answers.parts import Content, Part, ToolCallArguments, ToolCallBegin
from api.relay.answers.splitters import splitter_for
from api.stream_view import AnswerFormat

TEXT = (
    'I look. <tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call>'
    '<tool_call>{"name": "b", "arguments": {"y": 2}}</tool_call>'
)


def read(*texts: str, is_single: bool) -> list[Part]:
    splitter = splitter_for(AnswerFormat(tools="tagged", tool_names=("a", "b"), is_single=is_single))
    return [part for text in texts for part in splitter.feed(text)] + splitter.close()


@pytest.mark.parametrize("cut", range(0, len(TEXT), 7))
def test_the_first_call_alone_is_told(cut: int) -> None:
    parts = read(TEXT[:cut], TEXT[cut:], is_single=True)
    assert [part.name for part in parts if isinstance(part, ToolCallBegin)] == ["a"]
    assert "".join(part.text for part in parts if isinstance(part, ToolCallArguments)) == '{"x": 1}'
    assert "".join(part.text for part in parts if isinstance(part, Content)) == "I look."


def test_else_all_are() -> None:
    assert [part.name for part in read(TEXT, is_single=False) if isinstance(part, ToolCallBegin)] == ["a", "b"]


def test_a_name_that_cannot_be_told_is_no_call() -> None:
    parts = read('<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>', is_single=False)
    assert not any(isinstance(part, ToolCallBegin) for part in parts)
