"""Known fields that are not served yet: refused by name unless their value asks for nothing."""

from typing import Any

import pytest

from api.pipeline.unserved import CHAT, COMPLETIONS
from api.pipeline.validate import validate_chat, validate_completion
from tests.api.pipeline.refusals import facts_of, refusal

CHAT_REQUEST = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
COMPLETION_REQUEST = {"model": "m", "prompt": "x"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("modalities", ["text", "audio"]),
        ("audio", {}),
        ("best_of", 2),
        ("suffix", "end"),
        ("prompt_logprobs", 1),
        ("truncate_prompt_tokens", 5),
        ("use_beam_search", True),
        ("prediction", {"type": "content", "content": "x"}),
        ("verbosity", "low"),
        ("web_search_options", {}),
        ("chat_template", "{{ messages }}"),
        ("echo", True),
    ],
)
def test_a_chat_field_that_asks_for_something_is_refused_by_name(field: str, value: Any) -> None:
    assert facts_of(lambda: validate_chat({**CHAT_REQUEST, field: value})) == (400, field, "unsupported_parameter")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("best_of", 2),
        ("use_beam_search", True),
        ("add_special_tokens", False),
    ],
)
def test_a_completion_field_that_asks_for_something_is_refused_by_name(field: str, value: Any) -> None:
    refused = facts_of(lambda: validate_completion({**COMPLETION_REQUEST, field: value}))
    assert refused == (400, field, "unsupported_parameter")


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "best_of": 1},
        {"logprobs": False, "top_logprobs": 0, "echo": False, "suffix": ""},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1},
        {"logit_bias": {}},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
        {"tool_choice": "auto", "functions": [], "function_call": "none"},
        {"response_format": {"type": "text"}, "modalities": ["text"]},
        {"stop_token_ids": [], "ignore_eos": False, "min_tokens": 0},
        {"chat_template_kwargs": {}, "add_generation_prompt": True, "continue_final_message": False},
        dict.fromkeys(CHAT),
    ],
)
def test_neutral_values_are_accepted_in_chat(fields: dict[str, Any]) -> None:
    assert validate_chat({**CHAT_REQUEST, **fields}) == validate_chat(CHAT_REQUEST)


@pytest.mark.parametrize(
    "fields", [{"echo": False, "suffix": "", "n": 1, "best_of": 1, "logit_bias": {}}, dict.fromkeys(COMPLETIONS)]
)
def test_neutral_values_are_accepted_in_completions(fields: dict[str, Any]) -> None:
    assert validate_completion({**COMPLETION_REQUEST, **fields}) == validate_completion(COMPLETION_REQUEST)


def test_the_refusal_says_what_would_be_accepted() -> None:
    with refusal() as refused:
        validate_chat({**CHAT_REQUEST, "typical_p": 0.5})
    assert str(refused.error) == "This server does not support 'typical_p' yet; the only value accepted is 1."
