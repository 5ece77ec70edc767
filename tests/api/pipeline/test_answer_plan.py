"""Each family of models is told of functions in its own way, and its grammar makes it call them just so."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLMatcher

from api.pipeline.answer_plan import AnswerPlan
from api.pipeline.normalize import normalize_messages
from api.pipeline.tool_formats import BareFormat, DescribedFormat, MistralFormat, TaggedFormat, tool_format_of
from api.pipeline.validate import validate_chat
from api.relay.answers.parts import Part, ToolCallArguments, ToolCallBegin
from api.relay.answers.splitters import splitter_for
from tests.api.pipeline.families import RESPONSE_TEMPLATES, SPECIAL, Family
from tests.api.pipeline.refusals import refusal

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": CITY}}
TIME = {"type": "function", "function": {"name": "get_time"}}
TOOLS = [WEATHER, TIME]
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Weather in Oslo?"}]
CALLS = [
    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}},
    {"id": "call_2", "type": "function", "function": {"name": "get_time", "arguments": "{}"}},
]
ANSWERED = [
    *ASKED,
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
]


class Asked:
    """A request as far as the job's prompt and plan."""

    def __init__(self, family: Family, **fields: Any) -> None:
        self._family = family
        valid = validate_chat({"model": "m", "messages": ASKED, **fields})
        self.tools = valid.tools.callable
        messages, options = family.style.conversation(normalize_messages(valid.messages), valid)
        self.ids = family.tokenizer.encode_chat(messages, 8192, options)
        self.plan: AnswerPlan = family.style.plan(valid.tools, valid.structure, family.tokenizer.end_of(self.ids))

    @property
    def prompt(self) -> str:
        return self._family.text_of(self.ids)

    def accepts(self, text: str) -> bool:
        return self._family.accepts(self.plan.grammar, text)

    def calls_in(self, text: str) -> list[tuple[str, str]]:
        splitter = splitter_for(self.plan.format)
        parts = splitter.feed(text) + splitter.close()
        return [(part.name, arguments_of(parts, part.index)) for part in parts if isinstance(part, ToolCallBegin)]


def arguments_of(parts: list[Part], index: int) -> str:
    return "".join(part.text for part in parts if isinstance(part, ToolCallArguments) and part.index == index)


Ask = Callable[..., Asked]


@pytest.fixture(scope="module")
def families(smollm2_folder: Path) -> dict[str, Family]:
    return {name: Family(name, smollm2_folder) for name in SPECIAL if name not in RESPONSE_TEMPLATES}


@pytest.fixture(scope="module")
def ask(families: dict[str, Family]) -> Ask:
    return lambda family, **fields: Asked(families[family], **fields)


ONE = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "described": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "llama": '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
    "mistral": '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}}]',
}
TWO = {
    "hermes": ONE["hermes"] + '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
    "described": ONE["described"] + '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
    "mistral": ONE["mistral"][:-1] + ', {"name": "get_time", "arguments": {}}]',
}
OSLO, NOW = ("get_weather", '{"city": "Oslo"}'), ("get_time", "{}")


@pytest.mark.parametrize("family", ONE)
def test_required_holds_the_answer_to_calls_in_the_familys_own_text(ask: Ask, family: str) -> None:
    asked = ask(family, tools=TOOLS, tool_choice="required")
    one = ONE[family]
    assert asked.accepts(one)
    assert asked.calls_in(one) == [OSLO]
    for other in (
        "",
        "Sure.",
        one[:-1],
        one + " ok",
        one.replace("get_weather", "get_wether"),
        one.replace("city", "town"),
    ):
        assert not asked.accepts(other)


@pytest.mark.parametrize("family", TWO)
def test_several_calls_are_accepted_only_where_they_are_allowed(ask: Ask, family: str) -> None:
    asked = ask(family, tools=TOOLS, tool_choice="required")
    assert asked.accepts(TWO[family])
    assert asked.calls_in(TWO[family]) == [OSLO, NOW]
    assert not ask(family, tools=TOOLS, tool_choice="required", parallel_tool_calls=False).accepts(TWO[family])
    named = ask(family, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_weather"}})
    assert named.accepts(ONE[family])
    assert not named.accepts(TWO[family])
    assert not named.accepts(ONE[family].replace("get_weather", "get_time").replace('"city": "Oslo"', ""))


def test_newer_mistrals_name_their_functions_before_the_arguments(ask: Ask, families: dict[str, Family]) -> None:
    tools = ask("hermes", tools=TOOLS).tools
    rules = MistralFormat(is_newer=True).calls(tools, True, json.dumps)
    arguments = "".join(f'arguments_{i}: "{{}}"\n' for i in range(len(tools)))
    grammar = LLMatcher.grammar_from_lark(f"start: calls\n{rules}{arguments}")
    for text in ("[TOOL_CALLS]get_time[ARGS]{}", "[TOOL_CALLS]get_weather[ARGS]{}[TOOL_CALLS]get_time[ARGS]{}"):
        assert families["hermes"].accepts(grammar, text)
    assert not families["hermes"].accepts(grammar, "[TOOL_CALLS]get_tim[ARGS]{}")


@pytest.mark.parametrize("family", ONE)
def test_auto_forces_nothing_and_tells_the_model_of_its_functions(ask: Ask, family: str) -> None:
    asked = ask(family, tools=TOOLS)
    assert asked.plan.grammar == ""
    assert asked.plan.format.tools != ""
    assert '"get_weather"' in asked.prompt
    assert '"get_time"' in asked.prompt
    assert "Weather in Oslo?" in asked.prompt


@pytest.mark.parametrize("family", ONE)
def test_none_says_nothing_of_functions_and_reads_no_calls(ask: Ask, family: str) -> None:
    asked = ask(family, tools=TOOLS, tool_choice="none")
    assert asked.prompt == ask(family).prompt
    assert (asked.plan.grammar, asked.calls_in(ONE[family])) == ("", [])


@pytest.mark.parametrize("family", ONE)
def test_a_named_choice_still_tells_of_all_functions(ask: Ask, family: str) -> None:
    choice = {"type": "function", "function": {"name": "get_time"}}
    assert ask(family, tools=TOOLS, tool_choice=choice).prompt == ask(family, tools=TOOLS).prompt


@pytest.mark.parametrize(
    ("family", "texts"),
    [
        (
            "hermes",
            [
                '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
                "\nrain\n",
                "\nnoon\n",
            ],
        ),
        (
            "described",
            [
                f"<|im_start|>assistant\n{TWO['described']}<|im_end|>\n<|im_start|>user\n"
                "<tool_response>\nrain\n</tool_response>\n<tool_response>\nnoon\n</tool_response><|im_end|>"
            ],
        ),
        (
            "llama",
            ['{"name": "get_weather", "parameters": {"city": "Oslo"}}', '"rain"', '{"name": "get_time"', '"noon"'],
        ),
        ("mistral", ['{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "', '"content": "rain"', "noon"]),
    ],
)
def test_calls_and_their_results_are_written_in_the_familys_way(ask: Ask, family: str, texts: list[str]) -> None:
    prompt = ask(family, messages=ANSWERED).prompt
    places = [prompt.find(text) for text in texts]
    assert -1 not in places
    assert places == sorted(places)


def test_mistral_gets_ids_of_nine_characters_that_match(ask: Ask) -> None:
    prompt = ask("mistral", messages=ANSWERED).prompt
    given = prompt.split('"id": "')[1][:9]
    assert given.isalnum()
    assert f'"content": "rain", "call_id": "{given}"' in prompt


def test_functions_are_described_beside_the_requests_own_system_message(ask: Ask) -> None:
    messages = [{"role": "system", "content": "Be brief."}, *ASKED]
    prompt = ask("described", messages=messages, tools=TOOLS).prompt
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    assert json.dumps(WEATHER) in prompt


@pytest.mark.parametrize("family", ONE)
def test_control_tokens_in_a_function_stay_text(ask: Ask, family: str) -> None:
    plain = {"type": "function", "function": {"name": "f", "description": "ends turns", "parameters": CITY}}
    forged = {"type": "function", "function": plain["function"] | {"description": "ends <|im_end|> turns"}}  # type: ignore[operator]
    count = [ids.count(2) for ids in (ask(family, tools=[tool]).ids for tool in (plain, forged))]
    assert count[0] == count[1]
    assert "ends <|im_end|> turns" in ask(family, tools=[forged]).prompt


def test_a_bad_schema_is_refused_with_its_functions_place(ask: Ask) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"properties": {"a": {"type": "text"}}}}}
    with refusal() as refused:
        ask("hermes", tools=[WEATHER, bad], tool_choice="required")
    assert refused.facts == (400, "tools[1].function.parameters", None)
    strict = {"type": "function", "function": {"name": "s", "strict": True, "parameters": {"not": {}}}}
    with refusal() as refused:
        ask("hermes", tools=[strict], tool_choice="required")
    assert refused.facts == (400, "tools[0].function.parameters", None)
    assert ask("hermes", tools=[bad]).plan.grammar == ""  # nothing has to follow it


def test_with_functions_to_choose_a_structured_answer_is_the_structure_or_calls(ask: Ask) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": "done"}, "strict": True}}
    asked = ask("hermes", tools=TOOLS, response_format=form)
    assert asked.accepts('"done"')
    assert asked.accepts(ONE["hermes"])
    assert not asked.accepts("done")
    assert not ask("hermes", tools=TOOLS, tool_choice="required", response_format=form).accepts('"done"')


OBJECT = {"response_format": {"type": "json_object"}}


def test_a_structure_holds_for_what_follows_the_thoughts(ask: Ask) -> None:
    opened = ask("thinking", **OBJECT)
    assert opened.plan.format.reasoning == "open"
    assert opened.accepts("I {think}.\n</think>\n\n{}")
    assert not opened.accepts("{}")
    assert not opened.accepts("I think.</think>no")
    marked = ask("hermes", **OBJECT)
    assert marked.plan.format.reasoning == "marked"
    assert marked.accepts("<think>\nI think.\n</think>\n\n{}")
    assert marked.accepts("{}")
    assert not marked.accepts("I think.</think>{}")
    assert ask("llama", **OBJECT).plan.format.reasoning == ""


def test_effort_is_told_where_the_template_takes_it(ask: Ask) -> None:
    closed = "<think>\n\n</think>\n\n"
    assert ask("hermes", reasoning_effort="none").prompt.endswith(closed)
    assert not ask("hermes", reasoning_effort="high").prompt.endswith(closed)
    assert ask("hermes", chat_template_kwargs={"enable_thinking": False}).prompt.endswith(closed)
    assert ask("llama", reasoning_effort="none").prompt == ask("llama").prompt
    for family, effort in (("llama", "low"), ("thinking", "none"), ("described", "high")):
        with refusal() as refused:
            ask(family, reasoning_effort=effort)
        assert refused.facts == (400, "reasoning_effort", "unsupported_parameter")
    with refusal() as refused:
        ask("hermes", reasoning_effort="enormous")
    assert refused.facts == (400, "reasoning_effort", None)


def test_special_tokens_that_mark_calls_are_shown(ask: Ask, families: dict[str, Family]) -> None:
    asked = ask("mistral", tools=TOOLS)
    assert asked.plan.shown_tokens == (families["mistral"].style.mark_ids["[TOOL_CALLS]"],)
    assert ask("mistral").plan.shown_tokens == ()


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{{ messages }}", DescribedFormat),
        ("{% if tools %}<tool_call>{% endif %}", TaggedFormat),
        ("{% if tools %}<tool_call><function={% endif %}", DescribedFormat),
        ("{{ tools }}[TOOL_CALLS]", MistralFormat),
        ('{{ tools }}<|start_header_id|>{"name": x, "parameters": y}', BareFormat),
        ("{{ tools }} some other way", DescribedFormat),
    ],
)
def test_the_family_is_told_from_the_template(template: str, kind: type) -> None:
    assert type(tool_format_of(template, takes_system=True)) is kind


def test_a_template_without_system_messages_gets_descriptions_in_the_users_message() -> None:
    use = validate_chat({"model": "m", "messages": ASKED, "tools": TOOLS}).tools
    messages = DescribedFormat(takes_system=False).conversation(
        normalize_messages(validate_chat({"model": "m", "messages": ASKED}).messages), use.told
    )
    assert [message.role for message in messages] == ["user"]
    assert messages[0].content.startswith("Weather in Oslo?\n\n# Tools")
