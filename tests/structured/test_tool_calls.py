"""Given functions, a model of 135 million parameters calls them, or not, just as tool_choice says."""

import json
from typing import Any

import openai
import pytest
from jsonschema import Draft202012Validator
from openai import OpenAI
from pydantic import BaseModel, Field

from tests.structured.schemas import record

MODEL = "smollm2-135m"
PLACE = record(
    city={"type": "string", "maxLength": 12},
    unit={"enum": ["celsius", "fahrenheit"]},
    days={"type": "integer", "minimum": 1, "maximum": 7},
)
SCHEMAS: dict[str, dict[str, Any]] = {"get_weather": PLACE, "get_time": {"type": "object", "properties": {}}}
TOOLS: Any = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": PLACE}},
    {"type": "function", "function": {"name": "get_time", "description": "The time."}},
]
ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "tools": TOOLS,
    "temperature": 1,
    "max_tokens": 96,
}
SEEDS = range(3)


def assert_valid(calls: Any) -> None:
    for call in calls:
        assert call.type == "function"
        assert call.id.startswith("call_")
        arguments = json.loads(call.function.arguments)
        Draft202012Validator(SCHEMAS[call.function.name]).validate(arguments)
    assert len({call.id for call in calls}) == len(calls)


@pytest.mark.parametrize("seed", SEEDS)
def test_required_gives_valid_calls_and_nothing_else(client: OpenAI, seed: int) -> None:
    completion = client.chat.completions.create(**ASKED, tool_choice="required", parallel_tool_calls=False, seed=seed)
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert len(choice.message.tool_calls or []) == 1
    assert_valid(choice.message.tool_calls)


def test_required_allows_several_calls(client: OpenAI) -> None:
    completion = client.chat.completions.create(**ASKED, tool_choice="required", seed=1, n=2)
    for choice in completion.choices:
        assert choice.message.content is None
        calls = choice.message.tool_calls or []
        assert len(calls) >= 1
        assert_valid(calls if choice.finish_reason == "tool_calls" else calls[:-1])


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_named_function_is_called_once(client: OpenAI, name: str) -> None:
    named: Any = {"type": "function", "function": {"name": name}}
    choice = client.chat.completions.create(**ASKED, tool_choice=named, seed=5).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert [call.function.name for call in choice.message.tool_calls or [] if call.type == "function"] == [name]
    assert_valid(choice.message.tool_calls)


def test_a_stream_accumulates_to_the_whole_answer(client: OpenAI) -> None:
    asked = ASKED | {"tool_choice": "required", "parallel_tool_calls": False, "seed": 2}
    whole = client.chat.completions.create(**asked).choices[0]
    with client.chat.completions.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == whole.finish_reason == "tool_calls"
    functions = [
        [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
        for message in (whole.message, final.message)
    ]
    assert functions[0] == functions[1]
    assert kinds.count("tool_calls.function.arguments.done") == 1


class GetWeather(BaseModel):
    """The weather."""

    city: str = Field(max_length=12)
    days: int = Field(ge=1, le=7)


def test_parse_gives_the_arguments_as_a_model(client: OpenAI) -> None:
    tool = openai.pydantic_function_tool(GetWeather)
    completion = client.chat.completions.parse(
        **ASKED | {"tools": [tool]}, tool_choice="required", parallel_tool_calls=False, seed=4
    )
    calls = completion.choices[0].message.tool_calls or []
    assert calls
    for call in calls:
        assert isinstance(call.function.parsed_arguments, GetWeather)


def test_parse_gives_a_structured_answer_as_a_model(client: OpenAI) -> None:
    asked = {key: ASKED[key] for key in ("model", "messages", "temperature", "max_tokens")}
    completion = client.chat.completions.parse(**asked, response_format=GetWeather, seed=6)
    assert isinstance(completion.choices[0].message.parsed, GetWeather)


def test_auto_forces_no_call_and_none_never_gives_one(client: OpenAI) -> None:
    greeting = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 16}
    message = client.chat.completions.create(**ASKED | greeting).choices[0].message
    assert message.content
    assert message.tool_calls is None
    # Forced by a grammar to write what looks like a call
    text = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    asked = ASKED | {"tool_choice": "none", "extra_body": {"guided_choice": [text]}}
    message = client.chat.completions.create(**asked).choices[0].message
    assert (message.content, message.tool_calls) == (text, None)


def test_the_answer_to_a_call_goes_on_from_its_result(client: OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is noon."},
    ]
    choice = client.chat.completions.create(**ASKED | {"messages": messages, "temperature": 0}).choices[0]
    assert choice.finish_reason in ("stop", "length", "tool_calls")
    assert choice.message.content or choice.message.tool_calls


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "get_whether"}}}, "tool_choice"),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools[0].function.name"),
    ],
)
def test_unknown_functions_and_choices_without_functions_are_refused(
    client: OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**ASKED | fields)
    assert (refused.value.param, refused.value.status_code) == (param, 400)


def test_legacy_functions_are_called_too(client: OpenAI) -> None:
    asked = {key: value for key, value in ASKED.items() if key != "tools"}
    functions: Any = [TOOLS[0]["function"]]
    choice = client.chat.completions.create(
        **asked, functions=functions, function_call={"name": "get_weather"}, seed=8
    ).choices[0]
    assert choice.finish_reason == "function_call"
    assert choice.message.function_call is not None
    Draft202012Validator(PLACE).validate(json.loads(choice.message.function_call.arguments))
