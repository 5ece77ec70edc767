"""What a request may say of its answer on either endpoint, and what reaches the job of it."""

from typing import Any

import pytest

from api.pipeline.generation import Generation
from api.pipeline.normalize import normalize_sampling, used_tier
from api.pipeline.validate import validate_chat, validate_completion
from tests.api.pipeline.refusals import facts_of
from worker.protocol.job import JobClass, SamplingParams

CHAT_REQUEST = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def chat(**fields: Any) -> Generation:
    return validate_chat({**CHAT_REQUEST, **fields}).generation


def completion(**fields: Any) -> Generation:
    return validate_completion({"model": "m", "prompt": "x", **fields}).generation


def sampling(generation: Generation) -> SamplingParams:
    return normalize_sampling(generation, room=100, default_max_tokens=16, vocab_size=1000)


@pytest.mark.parametrize("ask", [chat, completion])
def test_every_field_reaches_the_job(ask: Any) -> None:
    asked = ask(
        presence_penalty=-2,
        frequency_penalty=2,
        repetition_penalty=1.5,
        logit_bias={"7": 100, "0": -100.0, "999": 0.5},
        stop_token_ids=[5, 0, 5],
        include_stop_str_in_output=True,
        ignore_eos=True,
        min_tokens=3,
        seed=1,
    )
    assert sampling(asked) == SamplingParams(
        max_tokens=16,
        seed=1,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        repetition_penalty=1.5,
        logit_bias=((7, 100.0), (0, -100.0), (999, 0.5)),
        stop_token_ids=(5, 0),
        include_stop=True,
        ignore_eos=True,
        min_tokens=3,
    )


@pytest.mark.parametrize("ask", [chat, completion])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", -1),
        ("n", 129),
        ("n", 2**70),
        ("n", "2"),
        ("n", True),
        ("n", 1.5),
        ("presence_penalty", 2.01),
        ("presence_penalty", "0"),
        ("frequency_penalty", -3),
        ("frequency_penalty", False),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("repetition_penalty", 1e300),
        ("logit_bias", []),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5": -100.5}),
        ("logit_bias", {"5": "1"}),
        ("logit_bias", {"5": None}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"": 1}),
        ("logit_bias", {" 5": 1}),
        ("logit_bias", {"five": 1}),
        ("logit_bias", {"٣": 1}),
        ("logit_bias", {"1e3": 1}),
        ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", {"5": 1, "05": 2}),
        ("stop_token_ids", 2),
        ("stop_token_ids", {}),
        ("include_stop_str_in_output", 1),
        ("ignore_eos", 0),
        ("ignore_eos", "true"),
        ("min_tokens", -1),
        ("min_tokens", 1.5),
        ("service_tier", "gold"),
        ("service_tier", 1),
    ],
)
def test_a_value_out_of_range_or_of_the_wrong_type_is_refused_by_name(ask: Any, field: str, value: Any) -> None:
    assert facts_of(lambda: ask(**{field: value})) == (400, field, None)


@pytest.mark.parametrize("ids", [[-1], [1.5], ["2"], [True], [None]])
def test_a_stop_token_that_is_no_id_is_refused_by_its_place(ids: list[Any]) -> None:
    assert facts_of(lambda: chat(stop_token_ids=ids)) == (400, "stop_token_ids[0]", None)


def test_more_tokens_than_allowed_cannot_be_demanded() -> None:
    assert facts_of(lambda: chat(min_tokens=6, max_tokens=5)) == (400, "min_tokens", None)
    assert facts_of(lambda: completion(min_tokens=1, max_tokens=0, echo=True)) == (400, "min_tokens", None)
    assert chat(min_tokens=5, max_tokens=5).min_tokens == 5
    assert chat(min_tokens=600).min_tokens == 600


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": None, "top_logprobs": None}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_chats_logprobs_need_no_top_logprobs(fields: dict[str, Any], expected: int | None) -> None:
    assert chat(**fields).logprobs == expected
    assert sampling(chat(**fields)).logprobs == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"top_logprobs": 5, "logprobs": False}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": False}, "top_logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"logprobs": "true"}, "logprobs"),
    ],
)
def test_chats_logprobs_of_another_kind_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert facts_of(lambda: chat(**fields)) == (400, param, None)


@pytest.mark.parametrize(
    ("tier", "job_class", "told"),
    [
        (None, JobClass.INTERACTIVE, ""),
        ("auto", JobClass.INTERACTIVE, "default"),
        ("default", JobClass.INTERACTIVE, "default"),
        ("priority", JobClass.INTERACTIVE, "default"),
        ("fast", JobClass.INTERACTIVE, "default"),
        ("scale", JobClass.INTERACTIVE, "default"),
        ("flex", JobClass.BATCH, "flex"),
        ("batch", JobClass.BATCH, "flex"),
    ],
)
def test_a_service_tier_is_a_class_of_the_queue_and_told_as_what_was_used(
    tier: str | None, job_class: JobClass, told: str
) -> None:
    assert used_tier(chat(service_tier=tier).service_tier) == (job_class, told)
