"""From a checked request to a Job."""

import dataclasses
import time
from functools import partial
from typing import Any

import pytest

from api.pipeline.prepare import PreparedRequest, cheap_size_bytes, fewest_tokens, prepare_chat, prepare_completion
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import validate_chat, validate_completion
from api.settings import ApiSettings
from tests.api.pipeline.refusals import facts_of, refusal
from worker.protocol.job import JobClass, decode_job, encode_job, pool_of

OVERHEAD = 30  # tokens SmolLM2's template puts around one user message
TOO_LONG = (400, "messages", "context_length_exceeded")


class Preparing:
    def __init__(self, model: ServedModel, settings: ApiSettings) -> None:
        self.model = model
        self.settings = settings

    def chat(self, content: Any = "Hello", **fields: Any) -> PreparedRequest:
        request = {"model": self.model.name, "messages": [{"role": "user", "content": content}], **fields}
        return prepare_chat(validate_chat(request), self.model, "acme", self.settings)

    def completion(self, prompt: Any = "Hello", **fields: Any) -> PreparedRequest:
        request = {"model": self.model.name, "prompt": prompt, **fields}
        return prepare_completion(validate_completion(request), self.model, "acme", self.settings)

    def with_context(self, max_context: int) -> "Preparing":
        return Preparing(dataclasses.replace(self.model, max_context=max_context), self.settings)


@pytest.fixture
def preparing(model: ServedModel, settings: ApiSettings) -> Preparing:
    return Preparing(model, settings)


def test_a_chat_becomes_a_job(preparing: Preparing, reference: Any) -> None:
    before_s = int(time.time())
    prepared = preparing.chat(stream=True, stream_options={"include_usage": True}, seed=7, stop="END", temperature=0.5)
    job = prepared.job
    chat = [{"role": "user", "content": "Hello"}]
    ids = reference.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert (prepared.view.is_stream, prepared.view.include_usage) == (True, True)
    assert job.prompts == (tuple(ids),)
    assert (job.pool, job.tenant, job.job_class) == ("smollm2-135m", "acme", JobClass.INTERACTIVE)
    assert job.id.startswith("chatcmpl-smollm2-135m-")
    assert pool_of(job.id) == "smollm2-135m"
    assert before_s <= job.created_s <= int(time.time())
    assert (job.timeout_ms, job.expected_tokens) == (600_000, 512)
    assert (job.sampling.max_tokens, job.sampling.seed, job.sampling.stop) == (8192 - len(ids), 7, ("END",))
    assert decode_job(encode_job(job)) == job


def test_a_completion_becomes_a_job_with_a_prompt_for_each_choice(preparing: Preparing) -> None:
    prepared = preparing.completion(["x  12", "<|im_start|>", "0"])
    assert prepared.job.prompts == ((104, 256, 33, 34), (1,), (32,))
    assert prepared.job.id.startswith("cmpl-smollm2-135m-")
    assert (prepared.job.sampling.max_tokens, prepared.job.expected_tokens) == (16, 16)
    assert (prepared.view.is_stream, prepared.view.include_usage) == (False, False)


@pytest.mark.parametrize(
    ("prompt", "expected"), [([0], ((0,),)), ([49151, 0], ((49151, 0),)), ([[3], [2, 1]], ((3,), (2, 1)))]
)
def test_token_ids_go_through_as_they_are(
    preparing: Preparing, prompt: list[Any], expected: tuple[tuple[int, ...], ...]
) -> None:
    assert preparing.completion(prompt).job.prompts == expected


@pytest.mark.parametrize(
    ("prompt", "param"),
    [([49152], "prompt[0]"), ([1, 2, 2**70], "prompt[2]"), ([[1], [1, 49152]], "prompt[1][1]")],
)
def test_token_ids_beyond_the_vocabulary_are_refused(preparing: Preparing, prompt: list[Any], param: str) -> None:
    assert facts_of(lambda: preparing.completion(prompt)) == (400, param, None)


@pytest.mark.parametrize(("prompt", "param"), [("", "prompt"), ([""], "prompt"), (["x", ""], "prompt[1]")])
def test_a_prompt_without_any_token_is_refused(preparing: Preparing, prompt: Any, param: str) -> None:
    assert facts_of(lambda: preparing.completion(prompt)) == (400, param, None)


@pytest.mark.parametrize("name", ["gpt-4o", "SMOLLM2-135M", "smollm2-135m ", "../x", "\x00", "m" * 100_000])
def test_an_unknown_model_is_not_found(preparing: Preparing, name: str) -> None:
    unknown = (404, "model", "model_not_found")
    assert facts_of(lambda: preparing.chat(model=name)) == unknown
    assert facts_of(lambda: preparing.completion(model=name)) == unknown


def test_parts_and_developer_equal_their_plain_forms(preparing: Preparing) -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert preparing.chat(parts).job.prompts == preparing.chat("Hello").job.prompts
    developer, system = (
        preparing.chat(messages=[{"role": role, "content": "Be brief."}, {"role": "user", "content": "Hi"}])
        for role in ("developer", "system")
    )
    assert developer.job.prompts == system.job.prompts


def test_calls_and_results_are_text_to_a_template_that_knows_neither(preparing: Preparing, reference: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    ids = preparing.chat(messages=messages).job.prompts[0]
    messages[1:] = [
        {"role": "assistant", "content": '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'},
        {"role": "user", "content": "<tool_response>\n42\n</tool_response>"},
    ]
    assert list(ids) == reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)


def test_several_answers_and_their_class_reach_the_job(preparing: Preparing) -> None:
    prepared = preparing.completion(["a", "b"], n=3, service_tier="flex")
    assert (prepared.job.n, prepared.job.num_choices, prepared.job.job_class) == (3, 6, JobClass.BATCH)
    assert (prepared.view.num_choices, prepared.view.service_tier) == (6, "flex")
    assert prepared.job.cost == 2 + 6 * 16
    usual = preparing.chat()
    assert (usual.job.n, usual.job.job_class, usual.view.service_tier) == (1, JobClass.INTERACTIVE, "")


@pytest.mark.parametrize("field", ["logit_bias", "stop_token_ids"])
def test_token_ids_that_the_model_does_not_have_are_refused_by_name(preparing: Preparing, field: str) -> None:
    def ask(token_id: int) -> PreparedRequest:
        value = {str(token_id): 1} if field == "logit_bias" else [2, token_id]
        return preparing.chat(**{field: value}) if token_id % 2 else preparing.completion(**{field: value})

    assert ask(49151).job
    for unknown in (49152, 49153, 10**17):
        assert facts_of(partial(ask, unknown)) == (400, field, None)


class TestAnEcho:
    def test_is_the_prompt_as_it_was_written(self, preparing: Preparing) -> None:
        text = "x  12<|im_start|>🐦"
        ids = preparing.completion(text).job.prompts[0]
        assert preparing.completion(text, echo=True).view.echo == (text,)
        assert preparing.completion(list(ids), echo=True).view.echo == (text,)
        assert preparing.completion([[32], list(ids)], echo=True, n=2).view.echo == ("0", text)
        assert preparing.completion(text).view.echo == ()

    def test_with_logprobs_asks_for_the_prompts_too(self, preparing: Preparing) -> None:
        def asked(**fields: Any) -> tuple[int | None, int | None, bool]:
            prepared = preparing.completion("x", **fields)
            return prepared.job.sampling.logprobs, prepared.job.sampling.prompt_logprobs, prepared.view.tells_logprobs

        assert asked(echo=True, logprobs=0) == (0, 0, True)
        assert asked(echo=True, logprobs=5) == (5, 5, True)
        assert asked(logprobs=2) == (2, None, True)
        assert asked(echo=True) == (None, None, False)

    def test_may_be_all_that_is_asked_for(self, preparing: Preparing) -> None:
        job = preparing.completion("x", echo=True, max_tokens=0).job
        assert (job.sampling.max_tokens, job.expected_tokens, job.cost) == (0, 0, 1)


def test_a_suffix_is_refused_by_name_where_the_model_cannot_fill_in(preparing: Preparing) -> None:
    assert facts_of(lambda: preparing.completion("x", suffix="end")) == (400, "suffix", "unsupported_parameter")


def test_the_model_answers_to_its_other_names_and_tells_its_own(preparing: Preparing) -> None:
    named = Preparing(dataclasses.replace(preparing.model, aliases=("gpt-4o",)), preparing.settings)
    prepared = named.chat(model="gpt-4o")
    assert (prepared.job.pool, prepared.view.model) == ("smollm2-135m", "smollm2-135m")
    assert facts_of(lambda: named.chat(model="gpt-4")) == (404, "model", "model_not_found")


class TestTheContext:
    def test_a_chat_may_fill_it_up_to_the_last_token(self, preparing: Preparing) -> None:
        prepared = preparing.with_context(OVERHEAD + 5).chat(" a b c d")
        assert (prepared.job.num_prompt_tokens, prepared.job.sampling.max_tokens) == (OVERHEAD + 4, 1)

    def test_a_chat_without_room_for_an_answer_is_refused(self, preparing: Preparing) -> None:
        with refusal() as refused:
            preparing.with_context(OVERHEAD + 4).chat(" a b c d", max_tokens=1)
        assert refused.facts == TOO_LONG
        assert "maximum context length is 34 tokens" in str(refused.error)
        assert "your messages resulted in 34 tokens" in str(refused.error)

    def test_a_text_that_can_never_fit_is_refused_by_its_bytes(self, preparing: Preparing) -> None:
        with refusal() as refused:
            preparing.chat("x" * 1_000_000)
        assert refused.facts == TOO_LONG
        assert "at least 12346 tokens" in str(refused.error)

    def test_white_space_around_a_message_counts_only_if_the_template_keeps_it(self, preparing: Preparing) -> None:
        assert preparing.chat(" " * 500_000 + "x").job.num_prompt_tokens < 8192

    def test_more_messages_than_tokens_are_refused(self, preparing: Preparing) -> None:
        messages = [{"role": "assistant", "content": ""}] * 8192
        assert facts_of(lambda: preparing.chat(messages=messages)) == TOO_LONG

    @pytest.mark.parametrize("prompt", [[1] * 100, ["x", " a" * 100], [[1], [1] * 100], "x" * 9_000])
    def test_a_prompt_without_room_for_an_answer_is_refused(self, preparing: Preparing, prompt: Any) -> None:
        small = preparing.with_context(100)
        assert facts_of(lambda: small.completion(prompt)) == (400, "prompt", "context_length_exceeded")

    def test_prompts_share_a_bound_that_serves_the_shortest(self, preparing: Preparing) -> None:
        job = preparing.with_context(100).completion([[1] * 99, [1] * 10], max_tokens=1000).job
        assert job.sampling.max_tokens == 90


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 8161),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 9, "max_completion_tokens": 3}, 3),
        ({"max_tokens": 8192}, 8161),
        ({"max_tokens": 2**70}, 8161),
    ],
)
def test_max_tokens_is_an_upper_bound_within_the_context(
    preparing: Preparing, fields: dict[str, int], expected: int
) -> None:
    assert preparing.chat(**fields).job.sampling.max_tokens == expected


@pytest.mark.parametrize(
    ("timeout", "expected_ms"), [(None, 600_000), (2.5, 2_500), (10**9, 600_000), (1e-9, 1), (1e300, 600_000)]
)
def test_a_timeout_may_only_shorten_the_servers(preparing: Preparing, timeout: Any, expected_ms: int) -> None:
    assert preparing.chat(timeout=timeout).job.timeout_ms == expected_ms


def test_the_cheap_size_counts_only_what_must_reach_the_tokenizer() -> None:
    messages = [
        {"role": "user", "content": " \u00e9\u00e9 \n"},
        {"role": "assistant", "content": "an earlier answer"},
        {"role": "tool", "content": "42"},
    ]
    assert cheap_size_bytes(validate_chat({"model": "m", "messages": messages})) == 6
    assert cheap_size_bytes(validate_completion({"model": "m", "prompt": ["abc", " d "]})) == 4
    assert cheap_size_bytes(validate_completion({"model": "m", "prompt": [1, 2, 3]})) == 0


def test_the_fewest_tokens_bound_prompts_from_below(model: ServedModel) -> None:
    def fewest(prompt: Any) -> int:
        return fewest_tokens(validate_completion({"model": "m", "prompt": prompt}), model)

    assert [fewest("x" * 81), fewest("x" * 82), fewest([1, 2, 3]), fewest([[1], [2, 3, 4]])] == [1, 2, 3, 4]
