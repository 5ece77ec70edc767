"""Given OpenAI's own Python SDK, everything it offers for responses works against this server."""

import json
from collections.abc import Iterator
from typing import Literal

import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from pydantic import BaseModel

from tests.api.http.reciter import RECITER, Recital
from tests.api.http.responses_client import QUESTION
from tests.processes import wait_until
from tests.stack import WebServer

NUM = 12
# One river only: whatever the model would rather say, the call has this argument.
TOOL: FunctionToolParam = {
    "type": "function",
    "name": "rise_of",
    "description": "Where a river rises.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"river": {"type": "string", "enum": ["Isar"]}},
        "required": ["river"],
        "additionalProperties": False,
    },
}


class River(BaseModel):
    name: Literal["Isar"]
    is_long: Literal[True]


@pytest.fixture
def client(server: WebServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_conversation(client: OpenAI, recital: Recital) -> None:
    first = client.responses.create(model=RECITER, input=QUESTION, max_output_tokens=NUM, temperature=0)
    assert first.usage is not None
    assert first.output_text == recital.text(first.usage.input_tokens, NUM)
    second = client.responses.create(
        model=RECITER, input="And then?", previous_response_id=first.id, max_output_tokens=NUM, temperature=0
    )
    assert second.usage is not None
    assert second.output_text == recital.text(second.usage.input_tokens, NUM)
    listed = client.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.type for item in listed] == ["message"] * 3  # the SDK turns the pages
    assert client.responses.retrieve(second.id) == second


def test_a_stream(client: OpenAI, recital: Recital) -> None:
    stream = client.responses.create(model=RECITER, input=QUESTION, max_output_tokens=NUM, temperature=0, stream=True)
    events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.usage is not None
    assert text == events[-1].response.output_text == recital.text(events[-1].response.usage.input_tokens, NUM)


def test_the_stream_helper_accumulates_the_same_response(client: OpenAI) -> None:
    extra = {"stop": [" hills"]}
    with client.responses.stream(model=RECITER, input=QUESTION, temperature=0, extra_body=extra) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text == " that gave it a name. The river rises in the"
    assert final.status == "completed"


def test_background_work_is_polled_cancelled_and_deleted(client: OpenAI, recital: Recital) -> None:
    queued = client.responses.create(
        model=RECITER, input=QUESTION, max_output_tokens=NUM, temperature=0, background=True
    )
    assert queued.status == "queued"
    wait_until(lambda: client.responses.retrieve(queued.id).status == "incomplete", "the response has ended")
    response = client.responses.retrieve(queued.id)
    assert response.usage is not None
    assert response.output_text == recital.text(response.usage.input_tokens, NUM)
    assert client.responses.cancel(queued.id).status == "incomplete"
    client.responses.delete(queued.id)
    with pytest.raises(openai.NotFoundError, match=f"Response with id '{queued.id}' not found"):
        client.responses.retrieve(queued.id)


def test_a_background_stream_is_taken_up_again(client: OpenAI) -> None:
    stream = client.responses.create(
        model=RECITER, input=QUESTION, max_output_tokens=NUM, temperature=0, background=True, stream=True
    )
    events = list(stream)
    assert events[0].type == "response.created"
    rest = client.responses.retrieve(events[0].response.id, stream=True, starting_after=events[4].sequence_number)
    assert list(rest) == events[5:]
    with client.responses.stream(response_id=events[0].response.id, starting_after=4) as helper:
        assert [event.sequence_number for event in helper] == [event.sequence_number for event in events[5:]]


def test_input_tokens_are_counted(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model=RECITER, input=QUESTION)
    response = client.responses.create(model=RECITER, input=QUESTION, max_output_tokens=1)
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens


def test_errors_are_the_sdks_own(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=RECITER, input=QUESTION, tools=[{"type": "web_search"}])
    assert (refused.value.param, refused.value.code) == ("tools[0].type", "unsupported_parameter")


def test_a_tool_is_called_and_the_answer_goes_on_with_its_result(client: OpenAI, recital: Recital) -> None:
    first = client.responses.create(
        model=RECITER, input=QUESTION, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, temperature=0
    )
    (call,) = first.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, json.loads(call.arguments), call.status) == ("rise_of", {"river": "Isar"}, "completed")
    second = client.responses.create(
        model=RECITER,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "In the Alps."}],
        previous_response_id=first.id,
        max_output_tokens=5,
        temperature=0,
    )
    assert second.usage is not None
    assert second.output_text == recital.text(second.usage.input_tokens, 5)


def test_a_streamed_call_is_collected_by_the_helper(client: OpenAI) -> None:
    with client.responses.stream(
        model=RECITER,
        input=QUESTION,
        tools=[TOOL],
        tool_choice={"type": "function", "name": "rise_of"},
        temperature=0,
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        (call,) = stream.get_final_response().output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments) == ("rise_of", "".join(pieces))
    assert json.loads(call.arguments) == {"river": "Isar"}
    assert len(pieces) > 1


def test_an_answer_is_parsed_into_the_class_that_gave_its_schema(client: OpenAI) -> None:
    response = client.responses.parse(model=RECITER, input=QUESTION, text_format=River, temperature=0)
    assert response.output_parsed == River(name="Isar", is_long=True)
    assert response.status == "completed"
