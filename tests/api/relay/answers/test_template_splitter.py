"""What is read from texts as a response template says, wherever these are cut; and where transformers says the same."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils.chat_parsing import parse_response

from api.pipeline.response_template import KNOWN
from api.relay.answers.parts import Content, Reasoning, ToolCallArguments, ToolCallBegin
from api.relay.answers.splitters import splitter_for
from api.stream_view import AnswerFormat
from tests.api.relay.answers.test_splitters import F, G, Told, read

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}


def answer_format(spec: Any, begun: str = "", **functions: Any) -> AnswerFormat:
    given = functions or {"f": PARAMETERS, "g": {"type": "object"}}
    return AnswerFormat(template=json.dumps(spec), begun=begun, functions=given)


TAGGED: Any = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*<\|im_end\|>"},
    },
}
CHANNELS: Any = {  # nothing stands outside of a field
    "start_anchor": "<|start|>assistant",
    "fields": {
        "reasoning": {"open": "<|channel|>analysis<|message|>", "close": ["<|end|>", "<|endless|>"]},
        "tool_calls": {
            "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>\w+)<\|message\|>",
            "close_pattern": r"<\|call\|>|$",
            "content": "json",
            "repeats": True,
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {
            "open": "<|channel|>final<|message|>",
            "close": "<|end|>",
            "repeats": True,
            "join": "\n",
            "content_args": {"strip": False},
        },
        "sources": {"open": "<|sources|>", "close": "<|end|>"},
    },
}
PYTHON: Any = {
    "start_anchor": "<s>",
    "fields": {
        "tool_calls": {
            "open_pattern": r"(?=\[f)",
            "close_pattern": r"(?<=\))\]",
            "content": "text",
        },
        "content": {"content": "text"},
    },
}
LISTED: Any = {
    "start_anchor": "<s>",
    "fields": {
        "tool_calls": {
            "open": "<calls>",
            "close": "</calls>",
            "content": "python-call-list",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}},
            "transform_each": True,
        },
        "content": {},
    },
}
QWEN, GLM = KNOWN["<function="], KNOWN["<arg_key>"]
TAG = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TAG_G = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'

CASES: list[tuple[AnswerFormat, str, Told]] = [
    (answer_format(TAGGED), "", []),
    (answer_format(TAGGED), "  plain < text\n", [("content", "plain < text")]),
    (answer_format(TAGGED), f"See:\n\n{TAG}\n{TAG_G}<|im_end|>",
     [("content", "See:"), F, G]),
    (answer_format(TAGGED), f"<think>\nHm. \n</think>\n\nYes.{TAG}", [("reasoning", "Hm."), ("content", "Yes."), F]),
    (answer_format(TAGGED), "<think>cut </thin", [("reasoning", "cut </thin")]),
    (answer_format(TAGGED), '<tool_call>{"name": "f", "arguments": {"a": "1"}}', [F]),  # a whole one, though unclosed
    # What is no whole call stays content, and what follows it is read on
    (answer_format(TAGGED), f"<tool_call>what?</tool_call>{TAG}", [("content", "<tool_call>what?</tool_call>"), F]),
    (answer_format(TAGGED), '<tool_call>{"name": 5}</tool_call>', [("content", '<tool_call>{"name": 5}</tool_call>')]),
    (answer_format(TAGGED), '<tool_call>{"name": "f", "argum', [("content", '<tool_call>{"name": "f", "argum')]),
    (answer_format(TAGGED), '<tool_call>{"name": "\\ud800"}</tool_call>',
     [("content", '<tool_call>{"name": "\\ud800"}</tool_call>')]),
    (answer_format(TAGGED), f"<tool_call>{'[' * 1200}</tool_call>",
     [("content", f"<tool_call>{'[' * 1200}</tool_call>")]),
    # What the prompt has begun
    (answer_format(TAGGED, "<think>\n"), "\nHm.\n</think>Yes", [("reasoning", "Hm."), ("content", "Yes")]),
    (answer_format(TAGGED, "<think>\n\n</think>\n\n"), "Yes", [("content", "Yes")]),
    (answer_format(TAGGED, "It rises"), " in the hills. ", [("content", " in the hills.")]),
    (answer_format(TAGGED, '<tool_call>{"name": "f", '), '"arguments": {"a": 1}}</tool_call>', [F]),
    (answer_format(TAGGED, TAG), TAG, [F]),
    # Fields that are all marked
    (answer_format(CHANNELS),
     '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{"a": 1}'
     "<|call|>",
     [("reasoning", "Hm."), F]),
    (answer_format(CHANNELS), '<|channel|>commentary to=functions.f<|message|>{"a": 1}', [F]),
    (answer_format(CHANNELS), "x<|channel|>final<|message|> a <|end|>y<|sources|>b<|end|><|channel|>final<|message|>c",
     [("content", " a \nc")]),
    (answer_format(CHANNELS), "<|channel|>analysis<|message|>a<|endless|>b<|channel|>final<|message|>c",
     [("reasoning", "a"), ("content", "c")]),
    (answer_format(LISTED), 'So: <calls>[f(a=1), g()]</calls>.', [("content", "So:"), F, G, ("content", ".")]),
    (answer_format(LISTED), 'So: <calls>[f(1)]</calls>.', [("content", "So:<calls>[f(1)]</calls>.")]),
    # Families whose tokenizers have none
    (answer_format(QWEN), "Ok.\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n 2\n3 \n"
     "</parameter>\n</function>\n</tool_call>", [("content", "Ok."), ("call", "f", '{"a": 1, "b": " 2\\n3 "}')]),
    (answer_format(QWEN), "<tool_call>\n<function=g>\n</function>\n</tool_call>", [G]),
    (answer_format(QWEN), "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n",
     [("content", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n")]),
    (answer_format(GLM, "\n<think>"), "Hm.</think>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
     "</tool_call>", [("reasoning", "Hm."), F]),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "text", "told"), CASES)
def test_an_answer_is_read_the_same_wherever_it_is_cut_in_two(answer: AnswerFormat, text: str, told: Told) -> None:
    assert read(answer, [text]) == told
    assert read(answer, list(text)) == told
    for at in range(0, len(text), 1 + len(text) // 160):
        assert read(answer, [text[:at], text[at:]]) == told


PIECES = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "f", "arguments": ', '"g"', "{", "}", " ", "\n",
    "<|channel|>", "final", "analysis", "<|message|>", "<|end|>", "<|call|>", "commentary to=functions.f", "f", "1",
    "<|im_end|>", "<function=f>", "</function>", "<parameter=a>", "</parameter>", "é🐦", "<", "[f", ")", "]", "\0",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=25), st.sampled_from([TAGGED, CHANNELS, QWEN, PYTHON]), st.data())
def test_any_text_is_read_the_same_however_it_is_cut(pieces: list[str], spec: Any, data: Any) -> None:
    text, answer = "".join(pieces), answer_format(spec)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    whole = read(answer, [text])
    assert read(answer, [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]) == whole
    assert read(answer, list(text)) == whole


@pytest.mark.parametrize("spec", [TAGGED, QWEN])
@given(
    thoughts=st.text("ab <\n", max_size=9), content=st.text("ab <\n", max_size=9), value=st.text("ab <{\n1", max_size=9)
)
def test_transformers_reads_the_same_message(spec: Any, thoughts: str, content: str, value: str) -> None:
    tagged = f"<tool_call>{json.dumps({'name': 'f', 'arguments': {'a': value}})}</tool_call>"
    call = (
        tagged if spec is TAGGED else f"<tool_call><function=f><parameter=a>{value}</parameter></function></tool_call>"
    )
    text = f"<think>{thoughts}</think>{content}{call}"
    functions = [{"function": {"name": "f", "parameters": PARAMETERS}}]
    message = parse_response(text, spec, prefix="", tools=functions)
    thinking = message.get("thinking") or message.get("reasoning_content") or ""
    (function,) = (each["function"] for each in message["tool_calls"])
    expected = [("reasoning", thinking), ("content", message.get("content", ""))]
    told = [*(each for each in expected if each[1]), ("call", "f", json.dumps(function["arguments"]))]
    assert read(answer_format(spec), [text]) == told


def test_what_can_be_told_is_told_at_once() -> None:
    splitter = splitter_for(answer_format(TAGGED, "<think>\n"))
    assert splitter.is_thinking
    assert splitter.feed("I th") == [Reasoning("I th")]
    assert splitter.feed("ink</think>So") == [Reasoning("ink"), Content("So")]
    assert not splitter.is_thinking
    assert splitter.feed(" <tool_c") == []
    assert splitter.feed("upboard") == [Content(" <tool_cupboard")]
    assert splitter.feed(TAG[:-1]) == []
    assert splitter.feed(">") == [ToolCallBegin(0, "f"), ToolCallArguments(0, '{"a": 1}')]
