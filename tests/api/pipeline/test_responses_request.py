"""A Responses request is checked in full, and said in the words of a chat request."""

from typing import Any

import pytest

from api.errors import ApiError
from api.pipeline.messages import Message, ToolCall
from api.pipeline.own_words import in_own_words
from api.pipeline.responses_chat import OWN_NAMES, chat_request
from api.pipeline.responses_request import ValidResponseRequest, validate_response
from api.pipeline.responses_shown import shown_fields
from api.stream_view import StreamView
from tests.api.pipeline.refusals import facts_of

DIGITS = "0123456789abcdef" * 2


def valid(**fields: Any) -> ValidResponseRequest:
    return validate_response({"model": "m", "input": "hi", **fields}, DIGITS)


def messages(items: list[dict[str, Any]] | str, **fields: Any) -> list[Message]:
    checked = valid(input=items, **fields)
    return list(chat_request(checked, checked.items).messages)


def call(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def test_text_is_a_message_of_the_user() -> None:
    assert messages("hi") == [Message(role="user", content="hi")]
    assert valid().items == (
        {
            "type": "message",
            "id": f"msg_{DIGITS}-in-0",
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}],
            "status": "completed",
        },
    )


def test_instructions_come_first_and_join_what_else_is_said_to_the_system() -> None:
    items = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    assert messages(items, instructions="Be brief.") == [
        Message(role="system", content="Be brief.\n\nBe kind."),
        Message(role="user", content="hi"),
    ]


def test_what_one_turn_of_the_assistant_consists_of_is_one_message() -> None:
    items: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        call("f", "c1", '{"x":1}'),
        call("g", "c2"),
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        call("f", "c3"),
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    assert messages(items) == [
        Message(role="user", content="ab"),
        Message(
            role="assistant",
            content="I look.",
            reasoning_content="hm",
            tool_calls=(ToolCall("c1", "f", '{"x":1}'), ToolCall("c2", "g", "{}")),
        ),
        Message(role="tool", content="one", tool_call_id="c1"),
        Message(role="tool", content="two", tool_call_id="c2"),
        Message(role="assistant", content="", tool_calls=(ToolCall("c3", "f", "{}"),)),
        Message(role="assistant", content="No."),
    ]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": None}, "model", None),
        ({"input": None}, "input", None),
        ({"input": []}, "input", None),
        ({"input": 3}, "input", None),
        ({"input": [{"role": "user"}]}, "input[0].content", None),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", None),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role", None),
        ({"input": [{"type": "computer_call_output", "output": {}}]}, "input[0].type", "unsupported_parameter"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
            "unsupported_parameter",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text", None),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id", None),
        ({"input": [{"type": "function_call", "call_id": "f"}]}, "input[0].name", None),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output", None),
        ({"input": [{"role": "user", "content": "x", "id": "i" * 300}]}, "input[0].id", None),
        ({"stream_options": {}}, "stream_options", None),
        ({"background": True, "store": False}, "store", None),
        ({"include": ["message.output_text.logprobs", "x"]}, "include[1]", None),
        ({"truncation": "middle"}, "truncation", None),
        ({"max_output_tokens": 0}, "max_output_tokens", None),
        ({"top_logprobs": 21}, "top_logprobs", None),
        ({"temperature": 2.5}, "temperature", None),
        ({"metadata": {str(i): "x" for i in range(17)}}, "metadata", None),
        ({"metadata": {"k": "x" * 513}}, "metadata.k", None),
        ({"metadata": {"k": 1}}, "metadata", None),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "unsupported_parameter"),
        ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"context_management": [{"type": "compaction"}]}, "context_management", "unsupported_parameter"),
        ({"background_options": {"completion_window": "2h"}}, "background_options", "unsupported_parameter"),
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"max_tokens": 5}, "max_tokens", "unsupported_parameter"),
        ({"response_format": {"type": "text"}}, "response_format", "unsupported_parameter"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(fields: dict[str, Any], param: str, code: str | None) -> None:
    assert facts_of(lambda: valid(**fields)) == (400, param, code)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "f"}, {"type": "mcp"}]}, "tools[1].type"),
        ({"tools": [{"type": "custom", "name": "f"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
    ],
)
def test_hosted_tools_are_refused_by_their_name(fields: dict[str, Any], param: str) -> None:
    checked = valid(**fields)
    assert facts_of(lambda: chat_request(checked, checked.items)) == (400, param, "unsupported_parameter")


def test_a_format_without_a_schema_is_refused_by_its_name() -> None:
    checked = valid(text={"format": {"type": "json_schema", "name": "answer"}})
    assert facts_of(lambda: chat_request(checked, checked.items)) == (400, "text.format.schema", None)


def test_a_number_that_cannot_be_kept_is_refused() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"maximum": 10**30}}
    checked = valid(tools=[tool])
    view = StreamView(endpoint="chat.completions", model="m", created_s=1)
    assert facts_of(lambda: shown_fields(checked.raw, view)) == (400, "tools", None)


@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        ("messages[3].content", "input"),
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("response_format", "text.format"),
        ("tools[2].function.name", "tools[2].name"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("tool_choice.allowed_tools.mode", "tool_choice.mode"),
        ("reasoning_effort", "reasoning.effort"),
        ("temperature", "temperature"),
    ],
)
def test_errors_name_the_fields_as_the_client_knows_them(theirs: str, own: str) -> None:
    error = in_own_words(ApiError(400, f"'{theirs}' is wrong.", param=theirs, code="c"), OWN_NAMES)
    assert (error.param, error.message, error.code) == (own, f"'{own}' is wrong.", "c")


def test_null_is_absent_and_what_is_neutral_is_accepted() -> None:
    fields = dict.fromkeys(
        ("conversation", "prompt", "metadata", "tools", "text", "reasoning", "store", "n", "include")
    )
    accepted = {
        "background_options": {"completion_window": "soonest"},
        "prompt_cache_retention": "24h",
        "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
        "max_tool_calls": 3,
        "something_new": 1,
    }
    checked = valid(**{**fields, **accepted})
    assert checked.is_stored
    assert not checked.wants_logprobs
