"""Functions in a chat request: what is taken, and what is refused by name."""

from typing import Any

import pytest

from api.pipeline.tools import ToolUse
from api.pipeline.validate import validate_chat
from tests.api.pipeline.refusals import facts_of

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def function(name: Any = "get_weather", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": PARAMETERS, **fields}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


DEEP: dict[str, Any] = {}
for _ in range(800):
    DEEP = {"properties": {"a": DEEP}}
TWO = [function(), function("get_time", parameters=None)]


def checked(**fields: Any) -> ToolUse:
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return validate_chat(request).tools


def names(use: ToolUse) -> tuple[list[str], list[str]]:
    return [tool.name for tool in use.told], [tool.name for tool in use.callable]


ALL = ["get_weather", "get_time"]


@pytest.mark.parametrize(
    ("choice", "told", "callable_names", "is_required"),
    [
        (None, ALL, ALL, False),
        ("auto", ALL, ALL, False),
        ("none", [], [], False),
        ("required", ALL, ALL, True),
        (named("get_time"), ALL, ["get_time"], True),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("get_time")]}},
            ["get_time"],
            ["get_time"],
            False,
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named(name) for name in ALL]}},
            ALL,
            ALL,
            True,
        ),
    ],
)
def test_tool_choice_says_what_may_and_what_must_be_called(
    choice: Any, told: list[str], callable_names: list[str], is_required: bool
) -> None:
    use = checked(tools=TWO, tool_choice=choice)
    assert (names(use), use.is_required) == ((told, callable_names), is_required)


def test_several_calls_are_allowed_unless_the_request_says_no_or_names_one_function() -> None:
    assert checked(tools=TWO).is_parallel
    assert checked(tools=TWO, tool_choice="required", parallel_tool_calls=True).is_parallel
    assert not checked(tools=TWO, tool_choice="required", parallel_tool_calls=False).is_parallel
    assert not checked(tools=TWO, tool_choice=named("get_time"), parallel_tool_calls=True).is_parallel


def test_a_function_without_parameters_takes_none() -> None:
    empty: dict[str, Any] = {}
    for parameters in (None, empty):
        use = checked(tools=[function(parameters=parameters, description="Tells the time.")])
        assert use.told[0].shown() == {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Tells the time.",
                "parameters": {"type": "object", "properties": {}},
            },
        }


def test_functions_and_function_call_mean_the_same_with_one_call_at_most() -> None:
    functions = [tool["function"] for tool in TWO]
    use = checked(functions=functions)
    assert (names(use), use.is_required, use.is_parallel, use.is_legacy) == ((ALL, ALL), False, False, True)
    use = checked(functions=functions, function_call={"name": "get_time"})
    assert (names(use), use.is_required, use.is_legacy) == ((ALL, ["get_time"]), True, True)
    assert names(checked(functions=functions, function_call="none")) == ([], [])


def test_legacy_messages_become_the_newer_ones() -> None:
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "rain"},
    ]
    _, call, result = validate_chat({"model": "m", "messages": messages}).messages
    assert [(each.id, each.name, each.arguments) for each in call.tool_calls] == [("f", "f", "{}")]
    assert (result.role, result.tool_call_id, result.content) == ("tool", "f", "rain")


REFUSED: list[tuple[dict[str, Any], str, str | None]] = [
    ({"tools": [{"function": {"name": "f"}}]}, "tools[0].type", None),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
    ({"tools": [function(), {"type": "function"}]}, "tools[1].function", None),
    ({"tools": [function(None)]}, "tools[0].function.name", None),
    ({"tools": [function("")]}, "tools[0].function.name", None),
    ({"tools": [function("get weather")]}, "tools[0].function.name", None),
    ({"tools": [function("wetter_für")]}, "tools[0].function.name", None),
    ({"tools": [function("a" * 65)]}, "tools[0].function.name", None),
    ({"tools": [function(), function()]}, "tools[1].function.name", None),
    ({"tools": [function(parameters=[])]}, "tools[0].function.parameters", None),
    ({"tools": [function(parameters={"type": "string"})]}, "tools[0].function.parameters", None),
    ({"tools": [function(parameters=DEEP)]}, "tools[0].function.parameters", None),
    ({"tools": [function(f"f{i}") for i in range(129)]}, "tools", None),
    ({"tools": {}}, "tools", None),
    ({"tools": TWO, "tool_choice": "any"}, "tool_choice", None),
    ({"tools": TWO, "tool_choice": named("get_weathr")}, "tool_choice", None),
    ({"tools": TWO, "tool_choice": {"type": "function"}}, "tool_choice", None),
    (
        {"tools": TWO, "tool_choice": {"type": "custom", "custom": {"name": "f"}}},
        "tool_choice",
        "unsupported_parameter",
    ),
    ({"tools": TWO, "tool_choice": {"type": "allowed_tools"}}, "tool_choice", None),
    ({"tool_choice": "required"}, "tool_choice", None),
    ({"tools": [], "tool_choice": named("f")}, "tool_choice", None),
    ({"tools": TWO, "functions": [{"name": "f"}]}, "functions", None),
    ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call", None),
    ({"functions": [{"name": "f"}], "function_call": "required"}, "function_call", None),
    ({"functions": [{"name": "f f"}]}, "functions[0].name", None),
    ({"parallel_tool_calls": "yes"}, "parallel_tool_calls", None),
]


@pytest.mark.parametrize(("fields", "param", "code"), REFUSED)
def test_bad_functions_and_choices_are_refused_by_name(fields: dict[str, Any], param: str, code: str | None) -> None:
    assert facts_of(lambda: checked(**fields)) == (400, param, code)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tools": None, "tool_choice": "auto"},
        {"tool_choice": "none", "parallel_tool_calls": True},
        {"functions": [], "function_call": "none"},
    ],
)
def test_without_functions_neutral_choices_say_nothing(fields: dict[str, Any]) -> None:
    assert names(checked(**fields)) == ([], [])
