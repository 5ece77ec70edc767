"""What a request asks of the drawing of tokens and of the end of its answer is done, and nothing of it in silence."""

from typing import Any

import pytest
from openai import OpenAI

from tests.api.http.client import CHAT, COMPLETIONS, answered, chat_body, completion_body, error_of, post, text_of
from tests.api.http.reciter import END, FILLER, PIECES, RECITER, Recital
from tests.stack import WebServer

FIRST, SECOND = 1838, 3725  # two ordinary tokens


def written(server: WebServer, recital: Recital, num_tokens: int = 4, **more: Any) -> str:
    """The answer as a word of a's and b's, where the bias makes the first token a little likelier than the second."""
    bias = {str(FIRST): 100, str(SECOND): 99.5}
    text = text_of(answered(server, COMPLETIONS, completion_body([FILLER] * 7, num_tokens, logit_bias=bias, **more)))
    for token_id, letter in ((FIRST, "a"), (SECOND, "b")):
        text = text.replace(recital.decode([token_id]), letter)
    return text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "aaaa"),
        ({"presence_penalty": 1}, "abaa"),
        ({"frequency_penalty": 1}, "abab"),
        ({"presence_penalty": -2, "frequency_penalty": -2}, "aaaa"),
        ({"presence_penalty": 0.4, "frequency_penalty": 0}, "aaaa"),
    ],
)
def test_biases_and_penalties_are_weighed_against_each_other(
    server: WebServer, recital: Recital, fields: dict[str, Any], expected: str
) -> None:
    assert written(server, recital, **fields) == expected


def test_a_repetition_penalty_keeps_the_prompts_tokens_away(server: WebServer, recital: Recital) -> None:
    """The recited text repeats no prompt; a prompt of the very token to come makes it the less likely one."""
    coming = recital.script[3]
    bias = {str(coming): -18, str(FIRST): 1}  # by a little the likeliest still
    body = completion_body([coming] * 3, 1, logit_bias=bias)
    assert text_of(answered(server, COMPLETIONS, body)) == recital.decode([coming])
    assert text_of(answered(server, COMPLETIONS, body | {"repetition_penalty": 2})) == recital.decode([FIRST])


def test_a_banned_token_does_not_come_and_the_end_can_be_forced(server: WebServer, recital: Recital) -> None:
    coming = recital.script[5]
    banned = answered(server, COMPLETIONS, completion_body([FILLER] * 5, 1, logit_bias={str(coming): -100}))
    assert text_of(banned) != recital.decode([coming])
    ended = answered(server, CHAT, chat_body(num_tokens=50, logit_bias={str(END): 100}))
    assert (text_of(ended), ended["choices"][0]["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize("key", ["49152", "99999999", "-1", "two", "1.0", ""])
def test_a_bias_for_no_token_of_the_model_is_refused_by_name(server: WebServer, key: str) -> None:
    for path, body in ((CHAT, chat_body()), (COMPLETIONS, completion_body("x"))):
        response = post(server, path, body | {"logit_bias": {"5": 1, key: 1}})
        assert (response.status_code, error_of(response)["param"]) == (400, "logit_bias")


def test_stop_tokens_end_an_answer_as_the_models_own_do(server: WebServer, recital: Recital) -> None:
    ids = recital.script[4:12]
    body = completion_body([FILLER] * 4, 8, stop_token_ids=[ids[3]])
    whole = answered(server, COMPLETIONS, body)
    assert (text_of(whole), whole["choices"][0]["finish_reason"]) == (recital.decode(ids[: ids.index(ids[3])]), "stop")
    refused = post(server, COMPLETIONS, body | {"stop_token_ids": [49152]})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "stop_token_ids")


def test_end_tokens_can_be_ignored_and_are_not_shown(server: WebServer, recital: Recital) -> None:
    prompt, num = recital.prompt("ending"), recital.num_tokens("ending")
    whole = answered(server, COMPLETIONS, completion_body(prompt, num + 5, ignore_eos=True))
    # What the model recites after the end token, without that.
    assert (text_of(whole), whole["choices"][0]["finish_reason"]) == (recital.text(len(prompt), num + 5), "length")
    assert text_of(whole).startswith(str(PIECES["ending"]))
    assert whole["usage"]["completion_tokens"] == num + 5


def test_so_many_tokens_come_before_anything_ends_the_answer(server: WebServer, recital: Recital) -> None:
    prompt, num = recital.prompt("ending"), recital.num_tokens("ending")
    whole = answered(server, COMPLETIONS, completion_body(prompt, 50, min_tokens=num + 3))
    assert whole["usage"]["completion_tokens"] > num + 3
    early = answered(server, COMPLETIONS, completion_body(recital.prompt("stops"), 100, stop=[" two"], min_tokens=4))
    assert text_of(early).startswith("one, two; three")


def test_a_kept_stop_string_ends_the_text(server: WebServer, recital: Recital) -> None:
    body = completion_body(recital.prompt("stops"), 100, stop=["; th", " END."])
    assert text_of(answered(server, COMPLETIONS, body)) == "one, two"
    assert text_of(answered(server, COMPLETIONS, body | {"include_stop_str_in_output": True})) == "one, two; th"


@pytest.mark.parametrize("fields", [{"top_k": 1}, {"min_p": 1}, {"top_p": 1e-9}, {"temperature": 1e-12}])
def test_each_filter_alone_can_leave_the_likeliest_token_only(tiny: WebServer, fields: dict[str, Any]) -> None:
    greedy = text_of(answered(tiny, COMPLETIONS, completion_body([5, 6], 8, model="tiny")))
    body = completion_body([5, 6], 8, model="tiny") | {"temperature": 2, "seed": 3} | fields
    assert text_of(answered(tiny, COMPLETIONS, body)) == greedy


def test_a_message_is_continued_where_it_was_left_open(server: WebServer) -> None:
    ask, begun = {"role": "user", "content": "Where?"}, {"role": "assistant", "content": "It rises in"}
    fields: dict[str, Any] = {"messages": [ask, begun], "continue_final_message": True, "add_generation_prompt": False}
    opened, continued = (
        answered(server, CHAT, chat_body(num_tokens=1, **more))["usage"]["prompt_tokens"]
        for more in ({"messages": [ask]}, fields)
    )
    assert continued == opened + 3
    both = post(server, CHAT, chat_body(**fields | {"add_generation_prompt": True}))
    assert (both.status_code, error_of(both)["param"]) == (400, "continue_final_message")


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT, {"prediction": {"type": "content", "content": "x"}}, "prediction"),
        (CHAT, {"best_of": 2}, "best_of"),
        (CHAT, {"modalities": ["audio"]}, "modalities"),
        (CHAT, {"use_beam_search": True}, "use_beam_search"),
        (CHAT, {"echo": True}, "echo"),
        (COMPLETIONS, {"best_of": 3, "n": 2}, "best_of"),
        (COMPLETIONS, {"suffix": "end"}, "suffix"),
        (COMPLETIONS, {"truncate_prompt_tokens": 4}, "truncate_prompt_tokens"),
        (COMPLETIONS, {"prompt_logprobs": 1}, "prompt_logprobs"),
        (COMPLETIONS, {"use_beam_search": True}, "use_beam_search"),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    server: WebServer, path: str, fields: dict[str, Any], param: str
) -> None:
    body = chat_body() if path == CHAT else completion_body("x")
    response = post(server, path, body | fields)
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (400, param, "unsupported_parameter")


def test_the_sdk_can_ask_for_all_of_it(server: WebServer) -> None:
    client = OpenAI(base_url=server.url + "/v1", api_key="x", max_retries=0)
    answer = client.chat.completions.create(
        model=RECITER,
        messages=[{"role": "user", "content": "Where does the river rise?"}],
        max_completion_tokens=3,
        n=2,
        seed=4,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        logit_bias={"5": 1},
        stop=["never"],
        logprobs=True,
        top_logprobs=2,
        service_tier="auto",
        user="u",
        metadata={"a": "b"},
        store=True,
        temperature=0,
        extra_body={"top_k": 5, "min_p": 0.01, "min_tokens": 1, "stop_token_ids": [7], "repetition_penalty": 1.01},
    )
    assert [choice.message.content for choice in answer.choices] == [answer.choices[0].message.content] * 2
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 6
