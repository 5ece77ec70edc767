"""Given an agent of OpenAI's agents SDK with one function, it calls it and answers, over chats and over responses."""

import asyncio
import json
from collections.abc import Iterator
from typing import Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    ToolCallItem,
    ToolCallOutputItem,
    function_tool,
    set_tracing_disabled,
)
from agents.models.interface import Model
from agents.result import RunResultBase
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall

from tests.api.http.reciter import RECITER, Recital
from tests.conformance.rivers import ISAR, QUESTION, RESULT, River

NUM = 60  # tokens at most, enough for the call


@function_tool
def rise_of(river: Literal["Isar"]) -> str:
    """Where a river rises."""
    return RESULT if river == "Isar" else "Elsewhere."


@pytest.fixture(autouse=True)
def tells_nobody() -> Iterator[None]:
    set_tracing_disabled(True)
    yield
    set_tracing_disabled(False)


@pytest.fixture(params=[OpenAIChatCompletionsModel, OpenAIResponsesModel])
def model(request: pytest.FixtureRequest, async_client: AsyncOpenAI) -> Model:
    made: Model = request.param(model=RECITER, openai_client=async_client)
    return made


@pytest.fixture
def agent(model: Model) -> Agent[None]:
    settings = ModelSettings(
        tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=NUM, include_usage=True
    )
    return Agent("Guide", instructions="Be brief.", model=model, tools=[rise_of], model_settings=settings)


def assert_called_once_and_answered(result: RunResultBase, recital: Recital) -> None:
    (called,) = [item.raw_item for item in result.new_items if isinstance(item, ToolCallItem)]
    (returned,) = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    assert isinstance(called, ResponseFunctionToolCall)
    assert (called.name, json.loads(called.arguments)) == ("rise_of", {"river": "Isar"})
    assert returned == RESULT
    usage = result.raw_responses[-1].usage
    assert len(result.raw_responses) == 2
    assert result.final_output == recital.text(usage.input_tokens, usage.output_tokens)


def test_an_agent_calls_its_function_and_answers(agent: Agent[None], runner: asyncio.Runner, recital: Recital) -> None:
    assert_called_once_and_answered(runner.run(Runner.run(agent, QUESTION)), recital)


def test_a_streamed_run_is_the_same(agent: Agent[None], runner: asyncio.Runner, recital: Recital) -> None:
    async def run() -> tuple[RunResultBase, str]:
        result = Runner.run_streamed(agent, QUESTION)
        text = ""
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        return result, text

    result, text = runner.run(run())
    assert_called_once_and_answered(result, recital)
    assert text == result.final_output


def test_an_agent_answers_with_an_object(model: Model, runner: asyncio.Runner) -> None:
    agent = Agent("Guide", model=model, output_type=River, model_settings=ModelSettings(temperature=0))
    assert runner.run(Runner.run(agent, QUESTION)).final_output == ISAR
