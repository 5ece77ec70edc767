"""Given Pydantic AI, its agents get text, objects and the results of functions over chats and over responses."""

import asyncio
from typing import Any, Literal

import pytest
from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput, RunContext, ToolOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.api.http.reciter import RECITER, Recital
from tests.conformance.rivers import ANSWER, ISAR, NUM, QUESTION, RESULT, River

GREEDY = ModelSettings(temperature=0)
SHORT = ModelSettings(temperature=0, max_tokens=NUM)


class CallsFirst(AbstractCapability[None]):
    """The agent must call its function at its first step."""

    def get_model_settings(self) -> Any:
        def settings(context: RunContext[None]) -> ModelSettings:
            first = ModelSettings(tool_choice=["rise_of"], parallel_tool_calls=False)
            return first if context.run_step == 1 else ModelSettings(max_tokens=5)

        return settings


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel])
def model(request: pytest.FixtureRequest, async_client: AsyncOpenAI) -> Model:
    made: Model = request.param(RECITER, provider=OpenAIProvider(openai_client=async_client))
    return made


def test_text(model: Model, runner: asyncio.Runner) -> None:
    result = runner.run(Agent(model, model_settings=SHORT).run(QUESTION))
    assert result.output == ANSWER
    assert result.usage.output_tokens == NUM
    assert result.response.finish_reason == "length"


def test_streamed_text(model: Model, runner: asyncio.Runner) -> None:
    async def ask() -> tuple[list[str], str]:
        async with Agent(model, model_settings=SHORT).run_stream(QUESTION) as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
            return pieces, await result.get_output()

    pieces, output = runner.run(ask())
    assert "".join(pieces) == output == ANSWER
    assert len(pieces) > 1


@pytest.mark.parametrize("output", [NativeOutput(River), ToolOutput(River)])
def test_an_object(model: Model, runner: asyncio.Runner, output: Any) -> None:
    agent: Agent[None, River] = Agent(model, output_type=output, model_settings=GREEDY)
    assert runner.run(agent.run(QUESTION)).output == ISAR


def test_an_agent_calls_its_function_and_goes_on_with_the_result(
    model: Model, runner: asyncio.Runner, recital: Recital
) -> None:
    agent = Agent(model, model_settings=GREEDY, capabilities=[CallsFirst()])

    @agent.tool_plain
    def rise_of(river: Literal["Isar"]) -> str:
        """Where a river rises."""
        return RESULT if river == "Isar" else "Elsewhere."

    result = runner.run(agent.run(QUESTION))
    parts = [part for message in result.all_messages() for part in message.parts]
    (call,) = [part for part in parts if isinstance(part, ToolCallPart)]
    (returned,) = [part for part in parts if isinstance(part, ToolReturnPart)]
    assert (call.tool_name, call.args_as_dict()) == ("rise_of", {"river": "Isar"})
    assert (returned.content, returned.tool_call_id) == (RESULT, call.tool_call_id)
    assert result.output == recital.text(result.response.usage.input_tokens, 5)
