"""Requests in Anthropic's words, checked and turned into chat requests."""

from typing import Any

import pytest

from api.errors import ApiError
from api.pipeline.anthropic_request import validate_count, validate_messages
from api.pipeline.messages import Message, ToolCall

ASK = {"role": "user", "content": "Where?"}
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {"at": {}}}}


def body(*turns: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(turns) or [ASK], **more}


def blocks(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": list(content)}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def test_sampling_and_limits_arrive_under_their_own_names() -> None:
    valid = validate_messages(
        body(stop_sequences=["a", "b"], temperature=0.5, top_p=0.9, top_k=3, stream=True, metadata={"user_id": "u"})
    )
    asked = valid.generation
    assert (asked.max_tokens, asked.stop, asked.temperature) == (9, ("a", "b"), 0.5)
    assert (asked.top_p, asked.top_k, asked.stream) == (0.9, 3, True)


def test_the_system_prompt_comes_first_and_blocks_are_joined() -> None:
    valid = validate_messages(body(blocks("user", text("Where "), text("to?")), system=[text("Be "), text("brief.")]))
    assert [(each.role, each.content) for each in valid.messages] == [("system", "Be brief."), ("user", "Where to?")]


def test_calls_and_their_results_become_messages_of_their_own() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "Isar"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("It "), text("flows.")]}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    valid = validate_messages(
        body(
            ASK, blocks("assistant", thought, text("I look."), call), blocks("user", result, text("And?")), tools=[TOOL]
        )
    )
    assert valid.messages[1:] == (
        Message(
            role="assistant",
            content="I look.",
            reasoning_content="Hm.",
            tool_calls=(ToolCall("toolu_1", "look", '{"at":"Isar"}'),),
        ),
        Message(role="tool", content="It flows.", tool_call_id="toolu_1"),
        Message(role="user", content="And?"),
    )
    assert [tool.name for tool in valid.tools.callable] == ["look"]


def test_an_assistants_turn_at_the_end_is_the_beginning_of_the_answer() -> None:
    valid = validate_messages(body(ASK, {"role": "assistant", "content": "It rises"}))
    assert (valid.template.continue_final_message, valid.template.add_generation_prompt) == (True, False)
    assert not validate_messages(body()).template.continue_final_message


@pytest.mark.parametrize(
    ("choice", "names", "is_required", "is_parallel"),
    [
        ({"type": "auto"}, ["look", "go"], False, True),
        ({"type": "any"}, ["look", "go"], True, True),
        ({"type": "any", "disable_parallel_tool_use": True}, ["look", "go"], True, False),
        ({"type": "tool", "name": "go"}, ["go"], True, False),
        ({"type": "none"}, [], False, True),
    ],
)
def test_the_choice_of_tools(choice: Any, names: list[str], is_required: bool, is_parallel: bool) -> None:
    use = validate_messages(body(tools=[TOOL, {**TOOL, "name": "go"}], tool_choice=choice)).tools
    assert ([tool.name for tool in use.callable], use.is_required, use.is_parallel) == (names, is_required, is_parallel)


@pytest.mark.parametrize(
    ("given", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "medium"),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"output_config": {"effort": "max"}}, "xhigh"),
    ],
)
def test_thinking_is_an_effort(given: dict[str, Any], effort: str | None) -> None:
    assert validate_messages(body(**given)).effort == effort


def test_an_output_format_is_a_structure() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    valid = validate_messages(body(output_config={"format": {"type": "json_schema", "schema": schema}}))
    assert valid.structure is not None


IMAGE = {"type": "image", "source": {"type": "url", "url": "x"}}


@pytest.mark.parametrize(
    ("request_body", "param"),
    [
        ({"model": "m", "messages": [ASK]}, None),  # max_tokens is required
        (body(max_tokens=0), "max_tokens"),
        (body({"role": "system", "content": "x"}), "messages[0].role"),
        (body(temperature=1.5), "temperature"),
        (body(stop_sequences=[""]), "stop_sequences[0]"),
        (body(blocks("user", IMAGE)), "messages[0].content[0].type"),
        (body(blocks("user")), "messages[0].content"),
        (body(blocks("user", {"type": "text"})), "messages[0].content[0].text"),
        (body(blocks("user", {"type": "tool_result"})), "messages[0].content[0].tool_use_id"),
        (body(ASK, blocks("assistant", {"type": "tool_use", "id": "x"})), "messages[1].content[0].name"),
        (body(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "tools[0].type"),
        (body(tools=[{"name": "look"}]), "tools[0].input_schema"),
        (body(tools=[{**TOOL, "name": "look at"}]), "tools[0].name"),
        (body(tools=[TOOL, {**TOOL, "name": "see", "input_schema": {"type": "array"}}]), "tools[1].input_schema"),
        (
            body(output_config={"format": {"type": "json_schema", "schema": {"multipleOf": 0.1234}}}),
            "output_config.format.schema",
        ),
        (body(tools=[TOOL], tool_choice={"type": "tool"}), "tool_choice.name"),
        (body(tools=[TOOL], tool_choice={"type": "tool", "name": "fly"}), "tool_choice"),
        (body(container="c"), "container"),
    ],
)
def test_what_is_not_served_is_refused_by_name(request_body: dict[str, Any], param: str | None) -> None:
    with pytest.raises(ApiError) as refused:
        validate_messages(request_body)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_no_messages_are_refused() -> None:
    with pytest.raises(ApiError, match="at least one message"):
        validate_count({"model": "m", "messages": []})


def test_counting_needs_no_limit() -> None:
    assert validate_count({"model": "m", "messages": [ASK]}).messages == (Message(role="user", content="Where?"),)
