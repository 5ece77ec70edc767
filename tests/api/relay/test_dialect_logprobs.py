"""Log-probabilities in OpenAI's shapes, with the text they belong to, and the same in streams and whole answers."""

import math
from typing import Any

import msgspec
import pytest

from api.relay.dialects.registry import dialect_of
from api.stream_view import StreamView
from worker.protocol.event import Delta, Event, Terminal, TokenLogprob, TokenLogprobs

BIRD = "🐦".encode()
DONE = Terminal("succeeded", num_prompt_tokens=2, num_completion_tokens=3)


def token(text: str | bytes, logprob: float = -0.5, *top: tuple[str | bytes, float]) -> TokenLogprobs:
    def one(text: str | bytes, logprob: float) -> TokenLogprob:
        return TokenLogprob(7, logprob, text.encode() if isinstance(text, str) else text)

    return TokenLogprobs(one(text, logprob), tuple(one(*each) for each in top))


def view(endpoint: str, num_choices: int = 1, *echo: str) -> StreamView:
    return StreamView(
        endpoint=endpoint, model="m", created_s=7, num_choices=num_choices, tells_logprobs=True, echo=echo
    )


def pieces(view: StreamView, *events: Event) -> list[dict[str, Any]]:
    """The choices of all chunks, which must be JSON."""
    dialect = dialect_of("id", view)
    chunks = [chunk for event in events for chunk in dialect.chunks(event)]
    assert msgspec.json.decode(msgspec.json.encode(chunks)) == chunks
    return [chunk["choices"][0] for chunk in chunks]


def whole(view: StreamView, *events: Event) -> list[dict[str, Any]]:
    answer = dialect_of("id", view).whole([*events, DONE])
    assert msgspec.json.decode(msgspec.json.encode(answer)) == answer
    choices: list[dict[str, Any]] = answer["choices"]
    return choices


EVENTS = [
    Delta(0, (1,), "a ", None, (token("a ", -0.25, ("a ", -0.25), ("<|im_end|>", -math.inf)),)),
    Delta(0, (2,), "", None, (token(BIRD[:3], -1.0),)),
    Delta(0, (3,), "🐦", "length", (token(BIRD[3:], -1e9),)),
]


def test_chat_tells_token_logprob_bytes_and_alternatives() -> None:
    shown = [
        {
            "token": "a ",
            "logprob": -0.25,
            "bytes": [97, 32],
            "top_logprobs": [
                {"token": "a ", "logprob": -0.25, "bytes": [97, 32]},
                {"token": "<|im_end|>", "logprob": -9999.0, "bytes": list(b"<|im_end|>")},
            ],
        },
        {"token": "\\xf0\\x9f\\x90", "logprob": -1.0, "bytes": [0xF0, 0x9F, 0x90], "top_logprobs": []},
        {"token": "\\xa6", "logprob": -9999.0, "bytes": [0xA6], "top_logprobs": []},
    ]
    assert whole(view("chat.completions"), *EVENTS)[0]["logprobs"] == {"content": shown, "refusal": None}
    assert [piece["logprobs"] for piece in pieces(view("chat.completions"), *EVENTS)] == [
        None,
        {"content": shown[:1], "refusal": None},
        {"content": shown[1:], "refusal": None},
        None,
    ]


def test_completions_tell_four_parallel_lists() -> None:
    first: dict[str, list[Any]] = {
        "tokens": ["a "],
        "token_logprobs": [-0.25],
        "top_logprobs": [{"a ": -0.25, "<|im_end|>": -9999.0}],
        "text_offset": [0],
    }
    rest: dict[str, list[Any]] = {
        "tokens": ["bytes:\\xf0\\x9f\\x90", "bytes:\\xa6"],
        "token_logprobs": [-1.0, -9999.0],
        "top_logprobs": [{"bytes:\\xf0\\x9f\\x90": -1.0}, {"bytes:\\xa6": -9999.0}],
        "text_offset": [2, 2],
    }
    assert [(piece["text"], piece["logprobs"]) for piece in pieces(view("completions"), *EVENTS)] == [
        ("a ", first),
        ("🐦", rest),
        ("", None),
    ]
    assert whole(view("completions"), *EVENTS)[0]["logprobs"] == {name: first[name] + rest[name] for name in first}


@pytest.mark.parametrize("endpoint", ["chat.completions", "completions"])
def test_an_answer_without_tokens_has_empty_lists(endpoint: str) -> None:
    (choice,) = whole(view(endpoint), Delta(0, (2,), "", "stop"))
    assert set(map(str, choice["logprobs"].values())) <= {"[]", "None"}
    assert [piece["logprobs"] for piece in pieces(view(endpoint), Delta(0, (2,), "", "stop"))][-1] is None


def test_what_was_not_asked_for_is_null() -> None:
    plain = StreamView(endpoint="completions", model="m", created_s=7)
    assert whole(plain, Delta(0, (1,), "a", "length"))[0]["logprobs"] is None


def test_the_chosen_token_is_among_its_alternatives_though_it_is_none_of_the_likeliest() -> None:
    event = Delta(0, (1,), "c", "length", (token("c", -3.0, ("a", -0.5), ("b", -1.0)),))
    (choice,) = whole(view("completions"), event)
    assert choice["logprobs"]["top_logprobs"] == [{"a": -0.5, "b": -1.0, "c": -3.0}]


PROMPT = (None, token(" river", -2.0))
ECHOED = {
    "tokens": ["The", " river"],
    "token_logprobs": [None, -2.0],
    "top_logprobs": [None, {" river": -2.0}],
    "text_offset": [0, 3],
}


def test_an_echo_begins_with_the_prompt_whose_first_token_is_told_nothing_of() -> None:
    events = [
        Delta(0, (1,), " rises", None, (token(" rises"),), PROMPT),
        Delta(0, (2,), ".", "stop", (token("."),)),
    ]
    asked = view("completions", 1, "The river")
    assert [(piece["text"], piece["logprobs"]) for piece in pieces(asked, *events)][:2] == [
        ("The river", ECHOED),
        (
            " rises",
            {"tokens": [" rises"], "token_logprobs": [-0.5], "top_logprobs": [{" rises": -0.5}], "text_offset": [9]},
        ),
    ]
    (choice,) = whole(asked, *events)
    assert (choice["text"], choice["finish_reason"]) == ("The river rises.", "stop")
    assert choice["logprobs"]["text_offset"] == [0, 3, 9, 15]
    assert all(
        choice["text"][at:].startswith(text)
        for at, text in zip(choice["logprobs"]["text_offset"], choice["logprobs"]["tokens"], strict=True)
    )


def test_an_echo_alone_ends_with_the_prompt() -> None:
    event = Delta(0, (), "", "length", (), PROMPT)
    (choice,) = whole(view("completions", 1, "The river"), event)
    assert choice == {"index": 0, "text": "The river", "logprobs": ECHOED, "finish_reason": "length"}


def test_each_choice_begins_with_its_own_prompt() -> None:
    """Two choices for each of two prompts. The second choice speaks before its prompt's logprobs are told."""
    asked = view("completions", 4, "The river", "x")
    events = [
        Delta(1, (1,), "b", "length", (token("b"),)),
        Delta(2, (1,), "c", "length", (token("c"),), (None,)),
        Delta(0, (1,), "a", "length", (token("a"),), PROMPT),
        Delta(3, (1,), "d", "length", (token("d"),)),
    ]
    choices = whole(asked, *events)
    assert [choice["text"] for choice in choices] == ["The rivera", "The riverb", "xc", "xd"]
    assert [choice["logprobs"]["text_offset"] for choice in choices] == [[0, 3, 9], [0, 3, 9], [0, 1], [0, 1]]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    streamed = pieces(asked, *events)
    for index, choice in enumerate(choices):
        assert "".join(piece["text"] for piece in streamed if piece["index"] == index) == choice["text"]


def test_an_echo_without_logprobs_waits_for_nothing() -> None:
    asked = StreamView(endpoint="completions", model="m", created_s=7, num_choices=2, echo=("x",))
    events: list[Event] = [Delta(1, (1,), "b", "length"), Delta(0, (1,), "a", "stop")]
    assert [(piece["index"], piece["text"]) for piece in pieces(asked, *events)] == [
        (1, "x"), (1, "b"), (1, ""), (0, "x"), (0, "a"), (0, ""),
    ]  # fmt: skip
    assert [choice["text"] for choice in whole(asked, *events)] == ["xa", "xb"]


def test_the_bytes_of_shown_tokens_are_the_text_whatever_a_stop_string_cuts_off() -> None:
    events = [
        Delta(0, (1,), "one", None, (token("one"),)),
        Delta(0, (5,), "", None, (token("<|im_start|>"),)),
        Delta(0, (2,), "", None, (token(" EN"),)),
        Delta(0, (3,), "", "stop", (token("D of"),)),
    ]
    for endpoint in ("chat.completions", "completions"):
        (choice,) = whole(view(endpoint), *events)
        if endpoint == "completions":
            assert (choice["text"], choice["logprobs"]["tokens"]) == ("one", ["one"])
        else:
            told = choice["logprobs"]["content"]
            assert bytes(byte for each in told for byte in each["bytes"]) == choice["message"]["content"].encode()


def test_a_control_token_in_a_chat_has_no_bytes() -> None:
    events = [Delta(0, (5,), "", None, (token("<|x|>"),)), Delta(0, (1,), "a", "length", (token("a"),))]
    told = whole(view("chat.completions"), *events)[0]["logprobs"]["content"]
    assert [(each["token"], each["bytes"]) for each in told] == [("<|x|>", None), ("a", [97])]


def test_all_roles_come_first_and_in_order_whichever_choice_speaks_first() -> None:
    asked = StreamView(endpoint="chat.completions", model="m", created_s=7, num_choices=3)
    streamed = pieces(asked, Delta(2, (1,), "c", "stop"), Delta(0, (1,), "a", "length"), Delta(1, (1,), "b", "stop"))
    assert [(piece["index"], piece["delta"]) for piece in streamed[:4]] == [
        *[(i, {"role": "assistant", "content": ""}) for i in range(3)],
        (2, {"content": "c"}),
    ]
    assert [(p["index"], p["finish_reason"]) for p in streamed if p["finish_reason"]] == [
        (2, "stop"), (0, "length"), (1, "stop"),
    ]  # fmt: skip
    assert sum("role" in piece["delta"] for piece in streamed) == 3
