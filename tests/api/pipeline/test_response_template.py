"""Where a model's tokenizer says how its answers are to be read, they are read so."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from api.pipeline.response_template import KNOWN, response_format
from api.pipeline.tool_formats import DescribedFormat, TaggedFormat, tool_format_of
from api.relay.answers.splitters import splitter_for
from tests.api.pipeline.families import RESPONSE_TEMPLATES, SPECIAL, Family
from tests.api.pipeline.test_answer_plan import ASKED, OSLO, TOOLS, Asked
from tests.api.relay.answers.test_splitters import Told, joined

TEXT = '<|channel>thought\nRain? <channel|>Let me see.<|call>call:get_weather{"city": "Oslo"}<call|>'


@pytest.fixture(scope="module")
def family(smollm2_folder: Path) -> Family:
    return Family("templated", smollm2_folder)


def read(asked: Asked, text: str) -> Told:
    splitter = splitter_for(asked.plan.format)
    return joined(splitter.feed(text) + splitter.close())


def shown(family: Family, asked: Asked) -> set[str]:
    return {family.text_of([token_id]) for token_id in asked.plan.shown_tokens}


def test_calls_and_thoughts_are_read_as_the_template_says(family: Family) -> None:
    asked = Asked(family, tools=TOOLS)
    assert '"name": "get_weather"' in asked.prompt  # as its own chat template tells of it
    assert asked.plan.grammar == ""
    assert shown(family, asked) == {*SPECIAL["templated"], "<|im_end|>"}
    assert read(asked, TEXT) == [("reasoning", "Rain?"), ("content", "Let me see."), ("call", *OSLO)]


def test_without_functions_what_looks_like_a_call_is_content(family: Family) -> None:
    for asked in (Asked(family), Asked(family, tools=TOOLS, tool_choice="none")):
        assert shown(family, asked) == {"<|channel>", "<channel|>", "<|im_end|>"}
        hidden = TEXT.replace("<|call>", "").replace("<call|>", "")
        content = 'Let me see.call:get_weather{"city": "Oslo"}'
        assert read(asked, hidden) == [("reasoning", "Rain?"), ("content", content)]


def test_what_the_prompt_has_begun_is_gone_on_with(family: Family) -> None:
    thinking = Asked(family, reasoning_effort="high")
    assert thinking.plan.format.begun == "<|channel>thought\n"
    assert read(thinking, "Rain.<channel|>Yes.") == [("reasoning", "Rain."), ("content", "Yes.")]
    messages = [*ASKED, {"role": "assistant", "content": "It rains"}]
    continued = Asked(family, messages=messages, continue_final_message=True)
    assert continued.plan.format.begun == "It rains"
    assert read(continued, " in Oslo.") == [("content", " in Oslo.")]


def test_a_turn_that_began_long_ago_is_looked_for(family: Family) -> None:
    assert family.style.sees_beginning("<|im_start|>assistant\nIt")
    assert not family.style.sees_beginning("rains and rains")


def test_what_a_grammar_holds_is_written_and_read_in_one_way_for_all(family: Family) -> None:
    asked = Asked(family, tools=TOOLS, tool_choice="required")
    tagged = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert asked.accepts(tagged)
    assert asked.calls_in(tagged) == [OSLO]
    structured = Asked(family, response_format={"type": "json_object"})
    assert structured.accepts("{}")
    assert read(structured, "{}") == [("content", "{}")]


def test_one_call_at_most_where_several_are_not_allowed(family: Family) -> None:
    asked = Asked(family, tools=TOOLS, parallel_tool_calls=False)
    call = TEXT[TEXT.index("<|call>") :]
    assert asked.calls_in(call * 2) == [OSLO]
    assert Asked(family, tools=TOOLS).calls_in(call * 2) == [OSLO, OSLO]


@pytest.mark.parametrize("mark", KNOWN)
def test_families_that_write_no_json_are_known(mark: str, family: Family) -> None:
    template = "{% if tools %}<tool_call>" + mark
    own = response_format(None, template, {})
    assert own is not None
    assert (own.spec, own.can_read(with_calls=True), own.can_read(with_calls=False)) == (KNOWN[mark], True, False)
    assert response_format(None, mark, {}) is None
    assert type(tool_format_of(template, takes_system=True, reads_calls=True)) is TaggedFormat
    assert type(tool_format_of("{{ messages }}", takes_system=True, reads_calls=True)) is DescribedFormat
    assert family.style.own is not None
    assert family.style.own.can_read(with_calls=False)


@pytest.mark.parametrize("own", [{"version": 2}, {"fields": {}}, {"fields": {"content": 5}}, [], "text", {"x": 1}])
def test_a_response_template_that_cannot_be_used_is_told_of_and_left_out(
    own: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert response_format(own, "", {}) is None
    assert bool(caplog.records) == bool(own)


def test_a_template_without_calls_leaves_these_to_the_family() -> None:
    fields = {key: value for key, value in RESPONSE_TEMPLATES["templated"]["fields"].items() if key != "tool_calls"}
    own = response_format({**RESPONSE_TEMPLATES["templated"], "fields": fields}, "", {})
    assert own is not None
    assert (own.can_read(with_calls=True), own.can_read(with_calls=False)) == (False, True)


def test_the_format_travels_with_the_job(family: Family) -> None:
    answer = Asked(family, tools=TOOLS).plan.format
    assert json.loads(answer.template)["fields"].keys() == RESPONSE_TEMPLATES["templated"]["fields"].keys()
    assert list(answer.functions) == ["get_weather", "get_time"]
    assert replace(answer, begun="x") != answer
