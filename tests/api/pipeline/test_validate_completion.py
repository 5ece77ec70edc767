"""Completion requests: the four forms of a prompt, and what is refused."""

from typing import Any

import pytest

from api.pipeline.validate import validate_completion
from tests.api.pipeline.refusals import facts_of


def prompts(prompt: Any) -> tuple[Any, ...]:
    return validate_completion({"model": "m", "prompt": prompt}).prompts


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


@pytest.mark.parametrize("max_tokens", [0, -1, 0.5])
def test_no_tokens_at_all_cannot_be_asked_for(max_tokens: Any) -> None:
    request = {"model": "m", "prompt": "x", "max_tokens": max_tokens, "echo": True}
    assert facts_of(lambda: validate_completion(request)) == (400, "max_tokens", None)
