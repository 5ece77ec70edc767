"""Calls and thoughts in chat chunks: what the SDK makes of the stream is the whole answer."""

from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from api.relay.answers.parts import tool_call_id
from api.relay.dialects.interface import Chunk
from api.relay.dialects.registry import dialect_of
from api.stream_view import AnswerFormat, StreamView
from worker.protocol.event import Delta, Event, FinishReason, Terminal

TOOLS = AnswerFormat(tools="tagged", tool_names=("f", "g"))
LEGACY = AnswerFormat(tools="tagged", tool_names=("f", "g"), is_legacy=True)
THINKS = AnswerFormat(reasoning="open", tools="tagged", tool_names=("f", "g"))
CALL_F = '<tool_call>\n{"name": "f", "arguments": {"city": "Óslo 🐦", "n": [1, 2]}}\n</tool_call>'
CALL_G = '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'


def events_of(texts: list[str], size: int, finish: FinishReason = "stop") -> list[Event]:
    """Each choice's text in pieces of so many characters, a token each; the choices take turns."""
    pieces = [[text[i : i + size] for i in range(0, len(text), size)] for text in texts]
    events: list[Event] = []
    for i in range(max(map(len, pieces))):
        for choice, its in enumerate(pieces):
            if i < len(its):
                events.append(Delta(choice, (7,), its[i], finish if i == len(its) - 1 else None))
    num = sum(map(len, pieces))
    return [*events, Terminal("succeeded", num_prompt_tokens=5, num_completion_tokens=num)]


def view_of(answer: AnswerFormat, num_choices: int = 1) -> StreamView:
    return StreamView(
        endpoint="chat.completions", model="m", created_s=7, answer=answer, num_choices=num_choices, include_usage=True
    )


def chunks_of(view: StreamView, events: list[Event]) -> list[Chunk]:
    dialect = dialect_of("id-1", view)
    return [chunk for event in events for chunk in dialect.chunks(event)]


def accumulated(chunks: list[Chunk]) -> ChatCompletion:
    state: Any = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    completion: ChatCompletion = state.get_final_completion()
    return completion


def whole_of(view: StreamView, events: list[Event]) -> dict[str, Any]:
    return dialect_of("id-1", view).whole(events)


def call(index: int, name: str, arguments: str, choice: int = 0) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": tool_call_id("id-1", choice, index), "type": "function", "function": function}


F, G = call(0, "f", '{"city": "Óslo 🐦", "n": [1, 2]}'), call(1, "g", "{}")
ANSWERS: list[tuple[str, str | None, list[dict[str, Any]]]] = [
    (f"{CALL_F}\n{CALL_G}", None, [F, G]),
    (f"I look.\n{CALL_F}\n{CALL_G}\nDone.", "I look.Done.", [F, G]),
    ("Nothing to call <tool", "Nothing to call <tool", []),
]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("text", "content", "calls"), ANSWERS)
def test_the_sdk_and_the_whole_answer_have_the_same_calls(
    text: str, content: str | None, calls: list[dict[str, Any]], size: int
) -> None:
    view, events = view_of(TOOLS), events_of([text], size)
    whole = whole_of(view, events)["choices"][0]
    assert (whole["message"]["content"], whole["message"].get("tool_calls", [])) == (content, calls)
    assert whole["finish_reason"] == ("tool_calls" if calls else "stop")
    choice = accumulated(chunks_of(view, events)).choices[0]
    told = [each.model_dump(include={"id", "type", "function"}) for each in choice.message.tool_calls or []]
    for each in told:
        each["function"].pop("parsed_arguments", None)
    assert told == calls
    assert (choice.message.content or None) == (content or None)
    assert choice.finish_reason == whole["finish_reason"]


def test_a_call_is_begun_once_and_its_arguments_follow_as_they_come() -> None:
    chunks = chunks_of(view_of(TOOLS), events_of([CALL_F], 1))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    begun = {"index": 0, "id": F["id"], "type": "function", "function": {"name": "f", "arguments": ""}}
    assert deltas[1] == {"tool_calls": [begun]}
    pieces = [{"tool_calls": [{"index": 0, "function": {"arguments": c}}]} for c in F["function"]["arguments"]]
    assert deltas[2:-1] == pieces
    assert deltas[-1] == {}


def test_a_call_that_is_cut_off_ends_with_length() -> None:
    view, events = view_of(TOOLS), events_of([CALL_F[:60]], 4, "length")
    choice = whole_of(view, events)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"city": "')


def test_each_choice_has_its_own_calls() -> None:
    view, events = view_of(TOOLS, 2), events_of([CALL_F, f"{CALL_G}\n{CALL_F}"], 5)
    whole = whole_of(view, events)["choices"]
    assert whole[0]["message"]["tool_calls"] == [F]
    arguments = F["function"]["arguments"]
    assert whole[1]["message"]["tool_calls"] == [call(0, "g", "{}", 1), call(1, "f", arguments, 1)]
    told = accumulated(chunks_of(view, events))
    assert [[each.id for each in choice.message.tool_calls or []] for choice in told.choices] == [
        [each["id"] for each in choice["message"]["tool_calls"]] for choice in whole
    ]


def test_legacy_clients_get_a_function_call() -> None:
    view, events = view_of(LEGACY), events_of([CALL_F], 3)
    choice = whole_of(view, events)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "function_call")
    assert choice["message"]["function_call"] == F["function"]
    assert "tool_calls" not in choice["message"]
    told = accumulated(chunks_of(view, events)).choices[0]
    assert told.message.function_call is not None
    assert told.message.function_call.model_dump() == F["function"]
    assert told.finish_reason == "function_call"


def test_thoughts_are_told_apart_and_counted() -> None:
    view, events = view_of(THINKS), events_of([f"I think.\n</think>\n\nLook: {CALL_G}"], 1)
    whole = whole_of(view, events)
    message = whole["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("I think.", "Look:")
    assert [each["function"]["name"] for each in message["tool_calls"]] == ["g"]
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": len("I think.\n</think>")}
    chunks = chunks_of(view, events)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "I think."
    assert chunks[-1]["usage"] == whole["usage"]
