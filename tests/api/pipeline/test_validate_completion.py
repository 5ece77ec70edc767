"""Completion requests: the four forms of a prompt, and what is refused."""

from typing import Any

import pytest

from api.pipeline.validate import ValidCompletionRequest, validate_completion
from tests.api.pipeline.refusals import facts_of


def valid(**fields: Any) -> ValidCompletionRequest:
    return validate_completion({"model": "m", "prompt": "x", **fields})


def prompts(prompt: Any) -> tuple[Any, ...]:
    return valid(prompt=prompt).prompts


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Once", ("Once",)),
        ("", ("",)),
        ("nul \x00 inside", ("nul \x00 inside",)),
        (["b", "a", "b"], ("b", "a", "b")),
        ([0], ((0,),)),
        ([5, 4, 3], ((5, 4, 3),)),
        ([[1, 2], [0]], ((1, 2), (0,))),
        (["x"] * 128, ("x",) * 128),
    ],
)
def test_the_four_forms_of_a_prompt_keep_their_order(prompt: Any, expected: tuple[Any, ...]) -> None:
    assert prompts(prompt) == expected


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        ([], "prompt"),
        (3, "prompt"),
        ({}, "prompt"),
        (True, "prompt"),
        (["x"] * 129, "prompt"),
        ([[1]] * 129, "prompt"),
        ([-1], "prompt[0]"),
        ([1, 2, -7], "prompt[2]"),
        ([1, 2.0], "prompt[1]"),
        ([1.5], "prompt[0]"),
        ([1, True], "prompt[1]"),
        ([False], "prompt[0]"),
        ([1, "x"], "prompt[1]"),
        ([1, None], "prompt[1]"),
        ([1, [2]], "prompt[1]"),
        (["x", 1], "prompt[1]"),
        (["x", None], "prompt[1]"),
        (["x", ["y"]], "prompt[1]"),
        ([None], "prompt[0]"),
        ([{}], "prompt[0]"),
        ([[]], "prompt[0]"),
        ([[1], []], "prompt[1]"),
        ([[1], "x"], "prompt[1]"),
        ([[1, -2]], "prompt[0][1]"),
        ([[1], ["x"]], "prompt[1][0]"),
    ],
)
def test_a_malformed_prompt_is_refused_by_its_place(prompt: Any, param: str) -> None:
    assert facts_of(lambda: prompts(prompt)) == (400, param, None)


def test_a_completion_names_its_model() -> None:
    assert facts_of(lambda: validate_completion({"prompt": "x"})) == (400, "model", None)


def test_chat_fields_are_unknown_to_completions_and_ignored() -> None:
    request = {"model": "m", "prompt": "x", "max_completion_tokens": 0, "messages": 3}
    assert validate_completion(request).generation.max_tokens is None


@pytest.mark.parametrize("echo", [{}, {"echo": False}, {"echo": None}])
def test_no_tokens_at_all_can_be_asked_for_with_an_echo_alone(echo: dict[str, Any]) -> None:
    assert facts_of(lambda: valid(max_tokens=0, **echo)) == (400, "max_tokens", None)
    assert (valid(max_tokens=0, echo=True).generation.max_tokens, valid(max_tokens=0, echo=True).echo) == (0, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": -1, "echo": True}, "max_tokens"),
        ({"max_tokens": 0.5, "echo": True}, "max_tokens"),
        ({"echo": "yes"}, "echo"),
        ({"echo": 1}, "echo"),
        ({"suffix": 3}, "suffix"),
        ({"suffix": "end", "echo": True}, "suffix"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 2.5}, "logprobs"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": "2"}, "best_of"),
        ({"prompt": ["x"] * 128, "n": 9}, "n"),
    ],
)
def test_what_completions_cannot_be_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert facts_of(lambda: valid(**fields)) == (400, param, None)


@pytest.mark.parametrize(("fields", "is_served"), [({"n": 3}, True), ({"n": 2}, False), ({}, False)])
def test_best_of_is_served_where_it_says_nothing_new(fields: dict[str, Any], is_served: bool) -> None:
    if is_served:
        assert valid(best_of=3, **fields) == valid(**fields)
    else:
        assert facts_of(lambda: valid(best_of=3, **fields)) == (400, "best_of", "unsupported_parameter")


@pytest.mark.parametrize("logprobs", [0, 1, 5])
def test_logprobs_and_echo_and_suffix_arrive(logprobs: int) -> None:
    assert valid(logprobs=logprobs, echo=True).generation.logprobs == logprobs
    assert (valid(suffix=" end").suffix, valid(suffix="").suffix, valid(suffix=None).suffix) == (" end", "", "")
