"""One way of saying each thing."""

from typing import Any

import pytest

from api.pipeline.messages import Message, ToolCall
from api.pipeline.normalize import normalize_messages, normalize_sampling
from api.pipeline.validate import validate_completion
from worker.protocol.job import SamplingParams


def sampling(**fields: Any) -> SamplingParams:
    generation = validate_completion({"model": "m", "prompt": "x", **fields}).generation
    return normalize_sampling(generation, room=100, default_max_tokens=16, vocab_size=1000)


def test_the_defaults_are_openais() -> None:
    assert sampling(seed=1) == SamplingParams(max_tokens=16, seed=1, temperature=1.0, top_p=1.0)


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0, 0.0), (1e-300, 0.0), (9e-5, 0.0), (1e-4, 1e-4), (0.5, 0.5), (2, 2.0), (None, 1.0)]
)
def test_a_tiny_temperature_is_greedy(temperature: Any, expected: float) -> None:
    assert sampling(temperature=temperature).temperature == expected


@pytest.mark.parametrize(
    ("seed", "expected"), [(0, 0), (5, 5), (-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (-(2**63), 2**63)]
)
def test_seeds_become_unsigned_64_bit_numbers(seed: int, expected: int) -> None:
    assert sampling(seed=seed).seed == expected


def test_an_absent_seed_is_minted_anew_each_time() -> None:
    seeds = {sampling(seed=seed).seed for seed in [None] * 50}
    assert len(seeds) == 50
    assert all(0 <= seed < 2**64 for seed in seeds)


@pytest.mark.parametrize(("top_k", "expected"), [(None, 0), (0, 0), (-1, 0), (1, 1), (999, 999), (1000, 0), (2**70, 0)])
def test_a_top_k_that_leaves_every_token_is_off(top_k: Any, expected: int) -> None:
    assert sampling(top_k=top_k).top_k == expected


@pytest.mark.parametrize(("max_tokens", "expected"), [(None, 16), (1, 1), (100, 100), (101, 100), (2**70, 100)])
def test_max_tokens_ends_where_the_context_does(max_tokens: Any, expected: int) -> None:
    assert sampling(max_tokens=max_tokens).max_tokens == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"x": [1, {"y": "\\u003c"}]}', {"x": [1, {"y": "<"}]}),
        ({"x": 1}, {"x": 1}),
        ("", {}),
        ("not json", "not json"),
        ("[1]", "[1]"),
        ('{"x": "\\ud800"}', '{"x": "\\ud800"}'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_of_tool_calls_become_objects_where_they_are(arguments: Any, expected: Any) -> None:
    message = Message(role="assistant", content="", tool_calls=(ToolCall(id=None, name="f", arguments=arguments),))
    assert normalize_messages([message])[0].tool_calls[0].arguments == expected


def test_developer_is_system_and_the_other_roles_stay() -> None:
    roles = ["developer", "system", "user", "assistant", "tool"]
    normal = normalize_messages([Message(role=role, content="x") for role in roles])
    assert [message.role for message in normal] == ["system", "system", "user", "assistant", "tool"]
