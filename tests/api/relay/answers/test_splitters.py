"""What splitters read from texts, wherever these are cut."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.relay.answers.parts import Content, Part, Reasoning, ToolCallArguments, ToolCallBegin
from api.relay.answers.splitters import splitter_for
from api.stream_view import AnswerFormat

TAGGED = AnswerFormat(tools="tagged", tool_names=("f", "g"))
MISTRAL = AnswerFormat(tools="mistral", tool_names=("f", "g"))
BARE = AnswerFormat(tools="bare", tool_names=("f", "g"))
OPEN = AnswerFormat(reasoning="open")
MARKED = AnswerFormat(reasoning="marked")
OPEN_TAGGED = AnswerFormat(reasoning="open", tools="tagged", tool_names=("f",))

Told = list[tuple[str, ...]]  # ("content", text), ("reasoning", text) or ("call", name, arguments)

F = ("call", "f", '{"a": 1}')
G = ("call", "g", "{}")
CASES: list[tuple[AnswerFormat, str, Told]] = [
    (AnswerFormat(), "  plain <tool_call> text\n", [("content", "  plain <tool_call> text\n")]),
    # Tagged
    (TAGGED, "", []),
    (TAGGED, " no call here\n", [("content", " no call here\n")]),
    (TAGGED, '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [F]),
    (TAGGED, '<tool_call>{"arguments":{"a": 1},"name":"f"}</tool_call>', [F]),
    (TAGGED, '\n\n<tool_call> { "name" : "f" , "arguments" : {"a": 1} } </tool_call>\n', [F]),
    (
        TAGGED,
        'Let me see.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>\n\nDone.',
        [("content", "Let me see."), F, G, ("content", "Done.")],
    ),
    (TAGGED, '<tool_call>[{"name":"f","arguments":{"a": 1}}, {"name":"g","arguments":{}}]</tool_call>', [F, G]),
    (TAGGED, '<tool_call>{"name": "g"}</tool_call>', [G]),
    (TAGGED, '<tool_call>{"name": "g", "arguments": null}</tool_call>', [G]),
    (TAGGED, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [F]),
    (TAGGED, '<tool_call>{"name": "f", "parameters": {"a": 1}, "id": "x", "why": [1, {"b": "}"}]}</tool_call>', [F]),
    (
        TAGGED,
        '<tool_call>{"name": "f", "arguments": {"s": "</tool_call> \\" }", "u": "\\u00e9🐦", "n": [[]]}}</tool_call>',
        [("call", "f", '{"s": "</tool_call> \\" }", "u": "\\u00e9🐦", "n": [[]]}')],
    ),
    # ... that are no whole calls
    (TAGGED, "a <tool_cal b", [("content", "a <tool_cal b")]),
    (TAGGED, "<tool_call>\nwhat?\n</tool_call>", [("content", "<tool_call>\nwhat?\n</tool_call>")]),
    (TAGGED, '<tool_call>{"name": 5}</tool_call>', [("content", '<tool_call>{"name": 5}</tool_call>')]),
    (TAGGED, '<tool_call>{"name": "f", oops}', [("content", '<tool_call>{"name": "f", oops}')]),
    (
        TAGGED,
        '<tool_call>{"name": "f", "arguments": oops}',
        [("content", '<tool_call>{"name": "f", "arguments": oops}')],
    ),
    (TAGGED, '<tool_call>{"name": "f', [("content", '<tool_call>{"name": "f')]),
    (TAGGED, '<tool_call>{"name": "f", "arguments": {"a": [1, "x', [("call", "f", '{"a": [1, "x')]),
    (TAGGED, '<tool_call>{"name": "f", "arguments": {"a": 1}} and more', [F, ("content", "and more")]),
    (TAGGED, '<tool_call>[{"name":"f","arguments":{"a": 1}}, 7]</tool_call>', [F, ("content", "7]</tool_call>")]),
    (TAGGED, "<tool_call>[]</tool_call>", [("content", "<tool_call>[]</tool_call>")]),
    (TAGGED, '<tool_call><tool_call>{"name": "g"}</tool_call>', [("content", "<tool_call>"), G]),
    # Mistral
    (MISTRAL, '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]', [F, G]),
    (MISTRAL, ' [TOOL_CALLS] [{"arguments": {"a": 1}, "name": "f", "id": "abcdefghi"}]\n', [F]),
    (MISTRAL, 'Yes.[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}', [("content", "Yes."), F, G]),
    (MISTRAL, '[TOOL_CALLS]f{"a": 1}', [F]),
    (MISTRAL, "[TOOL_CALLS]f and g", [("content", "[TOOL_CALLS]f and g")]),
    (MISTRAL, "see [TOOL", [("content", "see [TOOL")]),
    # Bare
    (BARE, '{"name": "f", "parameters": {"a": 1}}', [F]),
    (BARE, '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": 1}}', [F]),
    (BARE, '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}', [F, G]),
    (BARE, '{"name": "f", "parameters": {"a": 1}}\nThat was it. ', [F, ("content", "That was it.")]),
    (BARE, '{"name": "Bob", "parameters": {"a": 1}}', [("content", '{"name": "Bob", "parameters": {"a": 1}}')]),
    (BARE, ' {"answer": "a long one"} ', [("content", ' {"answer": "a long one"} ')]),
    (BARE, '{"name": "f"}', [("content", '{"name": "f"}')]),
    (BARE, 'Call {"name": "f", "parameters": {}}', [("content", 'Call {"name": "f", "parameters": {}}')]),
    # Reasoning
    (OPEN, "I think.\n</think>\n\nYes.\n", [("reasoning", "I think."), ("content", "Yes.\n")]),
    (OPEN, "<think>\nI  think </thin", [("reasoning", "I  think </thin")]),
    (OPEN, "</think>Yes", [("content", "Yes")]),
    (MARKED, "\n<think>\nHm.\n\n</think>\nYes", [("reasoning", "Hm."), ("content", "Yes")]),
    (MARKED, " <thinking> aloud </think>", [("content", " <thinking> aloud </think>")]),
    (OPEN_TAGGED, 'I <tool_call></think>\n<tool_call>{"name": "g"}', [("reasoning", "I <tool_call>"), G]),
]


def joined(parts: list[Part]) -> Told:
    """Neighbouring pieces of one thing as one."""
    told: list[list[str]] = []
    for part in parts:
        if isinstance(part, ToolCallBegin):
            assert part.index == sum(entry[0] == "call" for entry in told)
            told.append(["call", part.name, ""])
        elif isinstance(part, ToolCallArguments):
            assert told[-1][0] == "call"
            told[-1][2] += part.text
        else:
            kind = "content" if isinstance(part, Content) else "reasoning"
            if not told or told[-1][0] != kind:
                told.append([kind, ""])
            told[-1][1] += part.text
    return [tuple(entry) for entry in told]


def read(answer: AnswerFormat, pieces: list[str]) -> Told:
    splitter = splitter_for(answer)
    parts = [part for piece in pieces for part in splitter.feed(piece)]
    return joined(parts + splitter.close())


@pytest.mark.parametrize(("answer", "text", "told"), CASES)
def test_an_answer_is_read_the_same_wherever_it_is_cut_in_two(answer: AnswerFormat, text: str, told: Told) -> None:
    assert read(answer, [text]) == told
    assert read(answer, list(text)) == told
    for at in range(len(text)):
        assert read(answer, [text[:at], text[at:]]) == told


PIECES = [
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<think>", "</think>", '{"name": "f", "arguments": ',
    '"g"', '{"name": ', "{", "}", "[", "]", ", ", ": ", '"', "\\", " ", "\n", "f", "1", "null", "é🐦", "<",
    "parameters", ";",
]  # fmt: skip
FORMATS = [
    AnswerFormat(reasoning=reasoning, tools=tools, tool_names=("f",))
    for reasoning in ("", "marked", "open")
    for tools in ("", "tagged", "mistral", "bare")
]


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from(FORMATS), st.data())
def test_any_text_is_read_the_same_however_it_is_cut(pieces: list[str], answer: AnswerFormat, data: Any) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    places = [0, *cuts, len(text)]
    whole = read(answer, [text])
    assert read(answer, [text[a:b] for a, b in pairwise(places)]) == whole
    assert read(answer, list(text)) == whole


arguments_of_any_kind = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(arguments_of_any_kind, st.booleans(), st.integers(1, 7))
@example({"</tool_call>": '{"name": "g"}'}, True, 1)
def test_arguments_arrive_as_they_were_written(arguments: dict[str, Any], is_ascii: bool, size: int) -> None:
    written = json.dumps(arguments, ensure_ascii=is_ascii)
    text = f'<tool_call>\n{{"name": "f", "arguments": {written}}}\n</tool_call>'
    assert read(TAGGED, [text[i : i + size] for i in range(0, len(text), size)]) == [("call", "f", written)]


def test_arguments_and_thoughts_are_told_as_they_come() -> None:
    splitter = splitter_for(OPEN_TAGGED)
    assert splitter.feed("I th") == [Reasoning("I th")]
    assert splitter.is_thinking
    assert splitter.feed("ink</think>") == [Reasoning("ink")]
    assert not splitter.is_thinking
    assert splitter.feed('<tool_call>{"name": "f", "arguments": {"a": [1') == [
        ToolCallBegin(0, "f"),
        ToolCallArguments(0, '{"a": [1'),
    ]
    assert splitter.feed(", 2") == [ToolCallArguments(0, ", 2")]


def test_text_that_begins_no_call_waits_for_nothing() -> None:
    splitter = splitter_for(TAGGED)
    assert splitter.feed("a <b") == [Content("a <b")]
    assert splitter.feed(" and") == [Content(" and")]
    bare = splitter_for(BARE)
    assert bare.feed('{"answer": "so') == [Content('{"answer": "so')]
    assert bare.feed(" it") == [Content(" it")]
