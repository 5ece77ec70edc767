"""Given LangChain's model for OpenAI, chats, functions and structured output work over chats and over responses."""

import asyncio
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from openai import AsyncOpenAI
from pydantic import SecretStr

from tests.api.http.reciter import RECITER, Recital
from tests.conformance.rivers import ANSWER, ISAR, NUM, QUESTION, RESULT, River

KEY = SecretStr("none")


@tool
def rise_of(river: Literal["Isar"]) -> str:
    """Where a river rises."""
    return RESULT if river == "Isar" else "Elsewhere."


def chat_model(base_url: str, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(base_url=base_url, api_key=KEY, model=RECITER, temperature=0, max_retries=0, **more)


def added(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    return total


def test_a_chat(base_url: str) -> None:
    message = chat_model(base_url, max_tokens=NUM).invoke(QUESTION)
    assert isinstance(message, AIMessage)
    assert message.content == ANSWER
    assert message.response_metadata["finish_reason"] == "length"
    assert message.response_metadata["model_name"] == RECITER
    assert message.usage_metadata is not None
    assert message.usage_metadata["output_tokens"] == NUM


def test_a_stream_tells_the_same(base_url: str) -> None:
    chunks = list(chat_model(base_url, max_tokens=NUM, stream_usage=True).stream([HumanMessage(QUESTION)]))
    total = added(chunks)
    assert (total.content, total.response_metadata["finish_reason"]) == (ANSWER, "length")
    assert total.usage_metadata is not None
    assert total.usage_metadata["output_tokens"] == NUM
    assert len(chunks) > NUM


@pytest.mark.parametrize("use_responses_api", [False, True])
def test_a_function_is_called_and_its_result_is_taken_on(
    base_url: str, recital: Recital, use_responses_api: bool
) -> None:
    model = chat_model(base_url, use_responses_api=use_responses_api)
    asking = model.bind_tools([rise_of], tool_choice="required", parallel_tool_calls=False)
    called = asking.invoke(QUESTION)
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == ("rise_of", {"river": "Isar"})
    streamed = added(list(asking.stream(QUESTION)))  # type: ignore[arg-type]
    assert [(one["name"], one["args"]) for one in streamed.tool_calls] == [("rise_of", {"river": "Isar"})]
    result = rise_of.invoke(call)
    assert isinstance(result, ToolMessage)
    answer = chat_model(base_url, use_responses_api=use_responses_api, max_tokens=5).invoke(
        [HumanMessage(QUESTION), called, result]
    )
    assert answer.usage_metadata is not None
    assert answer.text == recital.text(answer.usage_metadata["input_tokens"], 5)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_an_answer_is_structured(base_url: str, method: Literal["json_schema", "function_calling"]) -> None:
    assert chat_model(base_url).with_structured_output(River, method=method).invoke(QUESTION) == ISAR


def test_responses(base_url: str) -> None:
    model = chat_model(base_url, use_responses_api=True, max_tokens=NUM)
    whole = model.invoke(QUESTION)
    streamed = added(list(model.stream(QUESTION)))
    assert whole.text == streamed.text == ANSWER
    usages = [one.usage_metadata for one in (whole, streamed)]
    assert [usage and usage["output_tokens"] for usage in usages] == [NUM, NUM]
    assert whole.response_metadata["status"] == "incomplete"
    structured = chat_model(base_url, use_responses_api=True).with_structured_output(River)
    assert structured.invoke(QUESTION) == ISAR


def test_text_completions(base_url: str, recital: Recital) -> None:
    model = OpenAI(base_url=base_url, api_key=KEY, model=RECITER, temperature=0, max_tokens=3, max_retries=0)
    num_tokens = len(recital.tokenizer.encode("The mill.", add_special_tokens=False).ids)
    assert model.invoke("The mill.") == recital.text(num_tokens, 3)
    assert "".join(model.stream("The mill.")) == recital.text(num_tokens, 3)


def test_many_at_once(base_url: str, async_client: AsyncOpenAI, runner: asyncio.Runner) -> None:
    model = chat_model(
        base_url, max_tokens=NUM, async_client=async_client.chat.completions, root_async_client=async_client
    )
    messages = runner.run(model.abatch([QUESTION] * 4))
    assert [message.content for message in messages] == [ANSWER] * 4
