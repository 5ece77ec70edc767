"""Several answers to one request: each under its own index, ended once, counted together."""

import pytest
from openai import OpenAI

from tests.api.http.client import (
    CHAT,
    COMPLETIONS,
    Json,
    answered,
    chat_body,
    completion_body,
    counts,
    streamed,
    text_of,
)
from tests.api.http.reciter import FILLER, RECITER
from tests.stack import WebServer

USAGE = {"stream_options": {"include_usage": True}}


def tiny_chat(n: int, **more: object) -> Json:
    return chat_body("Tell me.", 12, model="tiny", n=n, temperature=1, seed=11, **more)


def test_each_choice_of_a_stream_has_its_index_its_text_and_one_finish(tiny: WebServer) -> None:
    whole = answered(tiny, CHAT, tiny_chat(4))
    stream = streamed(tiny, CHAT, tiny_chat(4) | USAGE)
    texts = [text_of(whole, i) for i in range(4)]
    assert [stream.text(i) for i in range(4)] == texts
    assert [stream.finish(i) for i in range(4)] == [choice["finish_reason"] for choice in whole["choices"]]
    assert len(set(texts)) == 4
    assert counts(stream.chunks[-1]["usage"]) == counts(whole["usage"])
    assert whole["usage"]["completion_tokens"] == 4 * 12


def test_the_prompt_counts_once_and_the_answers_add_up(server: WebServer) -> None:
    body = completion_body([FILLER] * 5, 3)
    one, three = (answered(server, COMPLETIONS, body | {"n": n}) for n in (1, 3))
    assert (one["usage"]["prompt_tokens"], one["usage"]["completion_tokens"]) == (5, 3)
    assert (three["usage"]["prompt_tokens"], three["usage"]["completion_tokens"]) == (5, 9)
    assert [text_of(three, i) for i in range(3)] == [text_of(one)] * 3


def test_an_index_is_the_choices_and_counts_no_tokens(tiny: WebServer) -> None:
    for path, body in (
        (CHAT, chat_body("Tell.", 20, model="tiny")),
        (COMPLETIONS, completion_body([7], 20, model="tiny")),
    ):
        chunks = streamed(tiny, path, body | {"logprobs": 1 if path == COMPLETIONS else True}).chunks
        assert len(chunks) > 5
        assert [choice["index"] for chunk in chunks for choice in chunk["choices"]] == [0] * len(chunks)


def test_the_choices_of_a_chat_are_opened_in_order_before_any_speaks(tiny: WebServer) -> None:
    stream = streamed(tiny, CHAT, tiny_chat(5))
    opened = [chunk["choices"][0] for chunk in stream.chunks[:5]]
    assert [(choice["index"], choice["delta"]) for choice in opened] == [
        (i, {"role": "assistant", "content": ""}) for i in range(5)
    ]
    later = [chunk["choices"][0]["delta"] for chunk in stream.chunks[5:]]
    assert all("role" not in delta for delta in later)


def test_a_choice_does_not_depend_on_how_many_there_are(tiny: WebServer) -> None:
    few, many = (answered(tiny, CHAT, tiny_chat(n)) for n in (2, 6))
    assert [text_of(few, i) for i in range(2)] == [text_of(many, i) for i in range(2)]


def test_several_answers_to_several_prompts_are_numbered_by_prompt(server: WebServer) -> None:
    prompts = [[FILLER] * 2, [FILLER] * 9]
    body = completion_body(prompts, 3, n=2)
    alone = [text_of(answered(server, COMPLETIONS, completion_body(prompt, 3))) for prompt in prompts]
    expected = [alone[0], alone[0], alone[1], alone[1]]
    whole, stream = answered(server, COMPLETIONS, body), streamed(server, COMPLETIONS, body)
    assert [text_of(whole, i) for i in range(4)] == expected
    assert [stream.text(i) for i in range(4)] == expected
    assert [stream.finish(i) for i in range(4)] == ["length"] * 4
    assert counts(whole["usage"]) == (11, 12, 23)


def test_one_choice_may_end_long_before_another(server: WebServer) -> None:
    """The second prompt fills the script but for an end token."""
    body = completion_body([[FILLER] * 3, [FILLER] * 383], 6)
    stream = streamed(server, COMPLETIONS, body)
    assert [stream.finish(0), stream.finish(1)] == ["length", "stop"]
    assert (stream.text(1), len(stream.text(0)) > 10) == ("", True)


def test_as_many_choices_as_openai_allows(server: WebServer) -> None:
    whole = answered(server, COMPLETIONS, completion_body([FILLER], 1, n=128))
    assert [choice["index"] for choice in whole["choices"]] == list(range(128))
    assert counts(whole["usage"]) == (1, 128, 129)


@pytest.mark.parametrize("n", [1, 3])
def test_the_sdks_accumulator_keeps_the_choices_apart(tiny: WebServer, n: int) -> None:
    client = OpenAI(base_url=tiny.url + "/v1", api_key="x", max_retries=0)
    messages = [{"role": "user", "content": "Tell me."}]
    fields = {"model": "tiny", "messages": messages, "max_tokens": 12, "seed": 11, "n": n, "temperature": 1}
    whole = client.chat.completions.create(**fields)  # type: ignore[call-overload]
    with client.chat.completions.stream(**fields) as stream:  # type: ignore[arg-type]
        stream.until_done()
        gathered = stream.current_completion_snapshot  # the final one may not be cut off by its length
    assert [choice.message.content for choice in gathered.choices] == [c.message.content for c in whole.choices]
    assert [choice.index for choice in gathered.choices] == list(range(n))
    assert {choice.message.role for choice in gathered.choices} == {"assistant"}


@pytest.mark.parametrize("tier", [None, "auto", "flex", "batch", "priority"])
def test_the_service_tier_told_is_the_one_that_was_used(server: WebServer, tier: str | None) -> None:
    used = {None: None, "auto": "default", "priority": "default"}.get(tier, "flex")
    for path, body in ((CHAT, chat_body(service_tier=tier)), (COMPLETIONS, completion_body("x", service_tier=tier))):
        whole, stream = answered(server, path, body), streamed(server, path, body)
        assert {whole.get("service_tier"), *(chunk.get("service_tier") for chunk in stream.chunks)} == {used}


def test_seeds_are_kept_among_many_and_without_one_answers_differ(tiny: WebServer) -> None:
    body = completion_body([5, 6], 16, model="tiny", temperature=1)
    seeded = [text_of(answered(tiny, COMPLETIONS, body | {"seed": 2**64 - 1})) for _ in range(2)]
    unseeded = answered(tiny, COMPLETIONS, body | {"n": 4})
    assert seeded[0] == seeded[1]
    assert len({text_of(unseeded, i) for i in range(4)} | {seeded[0]}) == 5


def test_asked_for_by_another_name_the_model_tells_its_own(server: WebServer) -> None:
    assert answered(server, CHAT, chat_body() | {"model": "gpt-4o"})["model"] == RECITER
    assert {chunk["model"] for chunk in streamed(server, CHAT, chat_body() | {"model": "gpt-4o"}).chunks} == {RECITER}
