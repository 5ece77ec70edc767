"""Chat requests: what is accepted, and what is refused by which name."""

from typing import Any

import pytest

from api.pipeline.generation import Generation
from api.pipeline.validate import ValidChatRequest, validate_chat
from tests.api.pipeline.refusals import facts_of, refusal

USER = {"role": "user", "content": "Hello"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}

NULLABLE = [
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "seed",
    "stream",
    "stream_options",
    "timeout",
    "user",
    "metadata",
    "store",
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "tools",
    "tool_choice",
    "response_format",
    "presence_penalty",
    "frequency_penalty",
    "reasoning_effort",
    "functions",
    "audio",
]


def request(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **fields}


def valid(**fields: Any) -> ValidChatRequest:
    return validate_chat(request(**fields))


def generation(**fields: Any) -> Generation:
    return valid(**fields).generation


def refused(**fields: Any) -> tuple[int, str | None, str | None]:
    return facts_of(lambda: valid(**fields))


def test_the_smallest_request_leaves_all_choices_to_the_server() -> None:
    assert generation() == Generation(
        max_tokens=None,
        temperature=None,
        top_p=None,
        top_k=None,
        min_p=None,
        stop=(),
        seed=None,
        timeout_s=None,
        stream=False,
        include_usage=False,
    )


def test_every_field_arrives() -> None:
    assert generation(
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        stop=["a", "b"],
        seed=-3,
        timeout=2.5,
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    ) == Generation(
        max_tokens=7,
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        stop=("a", "b"),
        seed=-3,
        timeout_s=2.5,
        stream=True,
        include_usage=True,
    )


def test_null_means_absent_in_every_field() -> None:
    assert valid(**dict.fromkeys(NULLABLE)) == valid()


def test_unknown_and_merely_informative_fields_are_ignored() -> None:
    message = {**USER, "annotations": [], "cache_control": {"type": "ephemeral"}, "timestamp": 12}
    fields = {
        "user": "u-1",
        "metadata": {"k": "v"},
        "store": True,
        "safety_identifier": "s",
        "prompt_cache_key": "p",
        "extra_body": {"deep": [1, {"x": None}]},
        "thinking_budget": 3,
    }
    assert valid(messages=[message], **fields) == valid()


@pytest.mark.parametrize("missing", [None, ""])
def test_a_request_names_its_model(missing: Any) -> None:
    assert refused(model=missing) == (400, "model", None)
    assert facts_of(lambda: validate_chat({"messages": [USER]})) == (400, "model", None)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ({}, "messages"),
        ("Hello", "messages"),
        (["Hello"], "messages[0]"),
        ([USER, None], "messages[1]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": None, "content": "x"}], "messages[0].role"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([USER, {"role": "User", "content": "x"}], "messages[1].role"),
        ([{"role": "", "content": "x"}], "messages[0].role"),
        ([{"role": 3, "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "system", "content": None}], "messages[0].content"),
        ([{"role": "assistant", "content": None}], "messages[0].content"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "messages[0].content"),
        ([{"role": "user", "content": None, "tool_calls": [CALL]}], "messages[0].content"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"text": "x"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "text", "text": 3}]}], "messages[0].content[0].text"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]}],
            "messages[0].content[1].type",
        ),
        ([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": "x", "name": 3}], "messages[0].name"),
        ([{"role": "assistant", "tool_calls": [{"id": "c"}]}], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]}], "messages[0].tool_calls[0].type"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
    ],
)
def test_a_malformed_message_is_refused_by_its_place(messages: Any, param: str) -> None:
    assert refused(messages=messages) == (400, param, None)


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_every_role_is_accepted(role: str) -> None:
    assert valid(messages=[{"role": role, "content": "x"}]).messages[0].role == role


def test_text_parts_equal_the_joined_text() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": ""}, {"type": "text", "text": "lo"}]
    assert valid(messages=[{"role": "user", "content": parts}]) == valid()


def test_null_content_beside_tool_calls_is_accepted() -> None:
    message = valid(messages=[{"role": "assistant", "content": None, "tool_calls": [CALL]}]).messages[0]
    assert (message.content, message.tool_calls[0].name, message.tool_calls[0].id) == ("", "f", "call_1")


def test_the_fields_a_template_may_read_are_kept() -> None:
    message = {
        "role": "tool",
        "content": "42",
        "name": "f",
        "tool_call_id": "call_1",
        "refusal": "no",
        "reasoning_content": "hm",
    }
    kept = valid(messages=[message]).messages[0]
    assert (kept.name, kept.tool_call_id, kept.refusal, kept.reasoning_content) == ("f", "call_1", "no", "hm")


@pytest.mark.parametrize(
    "said", [{"content": None, "refusal": "No."}, {"content": [{"type": "refusal", "refusal": "No."}]}]
)
def test_what_an_assistant_refused_earlier_is_what_it_said(said: dict[str, Any]) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", **said}]
    assert validate_chat({"model": "m", "messages": turns}).messages[1].content == "No."


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.01),
        ("temperature", "0.5"),
        ("temperature", True),
        ("temperature", 2**70),
        ("top_p", 0),
        ("top_p", 1.0001),
        ("top_p", -1),
        ("top_p", False),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_k", True),
        ("min_p", -0.01),
        ("min_p", 1.1),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", -(2**70)),
        ("max_tokens", 1.5),
        ("max_tokens", "5"),
        ("max_tokens", True),
        ("max_completion_tokens", 0),
        ("max_completion_tokens", -5),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", 1.5),
        ("seed", "1"),
        ("seed", True),
        ("stream", "true"),
        ("stream", 1),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", "10"),
        ("stop", ""),
        ("stop", 3),
        ("stop", {}),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", "x" * 4097),
        ("stream_options", 3),
    ],
)
def test_a_value_out_of_range_or_of_the_wrong_type_is_refused_by_name(field: str, value: Any) -> None:
    assert refused(**{field: value}) == (400, field, None)


@pytest.mark.parametrize(
    ("stop", "param"), [(["a", ""], "stop[1]"), (["a", None], "stop[1]"), ([1], "stop[0]"), ([[]], "stop[0]")]
)
def test_a_bad_stop_string_is_refused_by_its_place(stop: Any, param: str) -> None:
    assert refused(stop=stop) == (400, param, None)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (None, ()),
        ([], ()),
        ("END", ("END",)),
        ("\n", ("\n",)),
        (["a", "b", "c", "d"], ("a", "b", "c", "d")),
        (["a", "a", "b"], ("a", "b")),
        ("\x00", ("\x00",)),
    ],
)
def test_the_forms_of_stop(stop: Any, expected: tuple[str, ...]) -> None:
    assert generation(stop=stop).stop == expected


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63, 2**64 - 1, -(2**63)])
def test_seeds_up_to_64_bits_are_accepted(seed: int) -> None:
    assert generation(seed=seed).seed == seed


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 5),
        ({"max_tokens": 9, "max_completion_tokens": 2}, 2),
        ({"max_tokens": None, "max_completion_tokens": 2}, 2),
        ({"max_tokens": 2**70}, 2**70),
    ],
)
def test_of_two_limits_the_smaller_counts(limits: dict[str, Any], expected: int) -> None:
    assert generation(**limits).max_tokens == expected


@pytest.mark.parametrize("stream", [{}, {"stream": False}, {"stream": None}])
@pytest.mark.parametrize("options", [{}, {"include_usage": True}])
def test_stream_options_without_a_stream_are_refused(stream: dict[str, Any], options: dict[str, Any]) -> None:
    assert refused(stream_options=options, **stream) == (400, "stream_options", None)


@pytest.mark.parametrize(
    ("options", "include_usage"),
    [
        (None, False),
        ({}, False),
        ({"include_usage": None}, False),
        ({"include_usage": False}, False),
        ({"include_usage": True}, True),
        ({"include_obfuscation": True, "unknown": 1}, False),
    ],
)
def test_only_include_usage_true_asks_for_usage(options: Any, include_usage: bool) -> None:
    assert generation(stream=True, stream_options=options).include_usage is include_usage


@pytest.mark.parametrize("value", [1, "true"])
def test_include_usage_is_a_truth_value(value: Any) -> None:
    assert refused(stream=True, stream_options={"include_usage": value}) == (400, "stream_options.include_usage", None)


def test_the_message_of_a_type_error_names_field_and_types() -> None:
    with refusal() as caught:
        valid(temperature="warm")
    assert str(caught.error) == "Invalid value for 'temperature': Expected float | null, got str."
