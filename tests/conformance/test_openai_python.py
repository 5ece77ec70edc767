"""Given OpenAI's own Python SDK, its helpers for classes and functions work; the rest of it is tested with the API."""

import asyncio
import json
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from tests.api.http.reciter import RECITER, Recital
from tests.conformance.rivers import ANSWER, ISAR, QUESTION, RESULT, STOP, RiseOf, River

MESSAGE: ChatCompletionUserMessageParam = {"role": "user", "content": QUESTION}
TOOL = openai.pydantic_function_tool(RiseOf, name="rise_of")


def test_a_chat_is_parsed_into_the_class_that_gave_its_schema(client: OpenAI) -> None:
    completion = client.chat.completions.parse(model=RECITER, messages=[MESSAGE], response_format=River, temperature=0)
    choice = completion.choices[0]
    assert choice.message.parsed == ISAR
    assert json.loads(choice.message.content or "") == ISAR.model_dump()
    assert (choice.finish_reason, choice.message.refusal) == ("stop", None)


def test_a_streamed_chat_is_parsed_as_it_grows(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=RECITER, messages=[MESSAGE], response_format=River, temperature=0
    ) as stream:
        events = list(stream)
        final = stream.get_final_completion().choices[0]
    snapshots = [event.parsed for event in events if event.type == "content.delta"]
    assert final.message.parsed == ISAR
    assert snapshots[-1] == ISAR.model_dump()
    assert len(snapshots) > 2
    assert [event.parsed for event in events if event.type == "content.done"] == [ISAR]


def test_a_call_is_parsed_and_its_result_is_taken_on(client: OpenAI, recital: Recital) -> None:
    completion = client.chat.completions.parse(
        model=RECITER,
        messages=[MESSAGE],
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    )
    choice = completion.choices[0]
    (call,) = choice.message.tool_calls or []
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert (call.type, call.function.name, call.id[:5]) == ("function", "rise_of", "call_")
    assert call.function.parsed_arguments == RiseOf(river="Isar")
    result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
    turns: Any = [MESSAGE, choice.message, result]  # the SDK takes its own messages back, though not by their types
    answer = client.chat.completions.create(
        model=RECITER,
        messages=turns,
        max_tokens=5,
        temperature=0,
    )
    assert answer.usage is not None
    assert answer.choices[0].message.content == recital.text(answer.usage.prompt_tokens, 5)


def test_a_streamed_call_is_accumulated(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=RECITER,
        messages=[MESSAGE],
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "rise_of"}},
        temperature=0,
    ) as stream:
        events = list(stream)
        choice = stream.get_final_completion().choices[0]
    pieces = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
    (done,) = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    (call,) = choice.message.tool_calls or []
    assert call.function.arguments == done.arguments == "".join(pieces)
    assert (done.name, done.index, done.parsed_arguments) == ("rise_of", 0, RiseOf(river="Isar"))
    assert (choice.finish_reason, choice.message.role, call.id[:5]) == ("tool_calls", "assistant", "call_")


def test_choices_are_accumulated_side_by_side(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=RECITER, messages=[MESSAGE], n=3, stop=STOP, temperature=0, logprobs=True, top_logprobs=2
    ) as stream:
        final = stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1, 2]
    for choice in final.choices:
        assert (choice.message.content, choice.finish_reason) == (ANSWER, "stop")
        tokens = (choice.logprobs and choice.logprobs.content) or []
        assert "".join(token.token for token in tokens).startswith(ANSWER)
        assert all(len(token.top_logprobs) == 2 for token in tokens)


def test_text_completions_tell_their_prompt_and_its_logprobs(client: OpenAI) -> None:
    (choice,) = client.completions.create(
        model=RECITER, prompt="The mill.", max_tokens=2, echo=True, logprobs=1, temperature=0
    ).choices
    assert choice.text.startswith("The mill.")
    assert choice.logprobs is not None
    assert "".join(choice.logprobs.tokens or []) == choice.text
    assert (choice.logprobs.text_offset or [])[0] == 0
    assert choice.finish_reason == "length"


def test_the_async_client_parses_too(async_client: AsyncOpenAI, runner: asyncio.Runner) -> None:
    async def stream_response() -> tuple[str, str]:
        async with async_client.responses.stream(
            model=RECITER, input=QUESTION, temperature=0, extra_body={"stop": [STOP]}
        ) as stream:
            text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
            return text, (await stream.get_final_response()).output_text

    completions, responses = async_client.chat.completions, async_client.responses
    chat = runner.run(completions.parse(model=RECITER, messages=[MESSAGE], response_format=River, temperature=0))
    assert chat.choices[0].message.parsed == ISAR
    response = runner.run(responses.parse(model=RECITER, input=QUESTION, text_format=River, temperature=0))
    assert response.output_parsed == ISAR
    assert runner.run(stream_response()) == (ANSWER, ANSWER)
