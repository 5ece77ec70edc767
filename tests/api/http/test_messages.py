"""Given Anthropic's own Python SDK, it works against this server."""

from collections.abc import Iterator

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import MessageParam, ToolChoiceParam, ToolParam

from tests.api.http.client import CHAT, answered, chat_body, get, post, text_of
from tests.api.http.reciter import CONTEXT, RECITER
from tests.stack import WebServer

QUESTION: MessageParam = {"role": "user", "content": "Where does the river rise?"}
TOOL: ToolParam = {
    "name": "rise",
    "description": "Where a river rises.",
    "input_schema": {
        "type": "object",
        "properties": {"river": {"type": "string", "enum": ["Isar", "Inn"]}},
        "required": ["river"],
        "additionalProperties": False,
    },
}
NUM = 12
GREEDY = {"temperature": 0}  # the SDK has no parameter for it any more


@pytest.fixture
def client(server: WebServer) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def expected(server: WebServer) -> str:
    return text_of(answered(server, CHAT, chat_body(num_tokens=NUM)))


def test_a_whole_message(client: Anthropic, expected: str) -> None:
    message = client.messages.create(model=RECITER, messages=[QUESTION], max_tokens=NUM, extra_body=GREEDY)
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": expected}]
    assert (message.id[:4], message.role, message.stop_reason) == ("msg_", "assistant", "max_tokens")
    assert message.usage.output_tokens == NUM
    counted = client.messages.count_tokens(model=RECITER, messages=[QUESTION]).input_tokens
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) == counted


def test_a_streamed_message(client: Anthropic, expected: str) -> None:
    with client.messages.stream(model=RECITER, messages=[QUESTION], max_tokens=NUM, extra_body=GREEDY) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(texts) == expected
    assert len(texts) > 1
    assert [block.to_dict() for block in final.content] == [{"type": "text", "text": expected}]
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", NUM)


def test_a_stop_sequence_is_named(client: Anthropic, expected: str) -> None:
    word = expected.split()[2]
    message = client.messages.create(
        model=RECITER, messages=[QUESTION], max_tokens=NUM, extra_body=GREEDY, stop_sequences=["never", word]
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", word)
    assert "".join(block.text for block in message.content if block.type == "text") == expected.partition(word)[0]


@pytest.mark.parametrize("choice", ["any", "tool"])
def test_a_forced_call_is_valid_whatever_the_model_would_say(client: Anthropic, choice: str) -> None:
    forced: ToolChoiceParam = {"type": "any", "disable_parallel_tool_use": True}
    if choice == "tool":
        forced = {"type": "tool", "name": "rise"}
    with client.messages.stream(
        model=RECITER, messages=[QUESTION], max_tokens=60, tools=[TOOL], tool_choice=forced
    ) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    call = next(block for block in final.content if block.type == "tool_use")
    assert call.name == "rise"
    assert call.input in ({"river": "Isar"}, {"river": "Inn"})


def test_a_conversation_with_calls_goes_on(client: Anthropic) -> None:
    turns: list[MessageParam] = [
        QUESTION,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "rise", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "In the hills."}]},
    ]
    message = client.messages.create(model=RECITER, messages=turns, max_tokens=3, tools=[TOOL], extra_body=GREEDY)
    assert message.usage.output_tokens == 3


def test_errors_are_anthropics(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(model="gpt-9", messages=[QUESTION], max_tokens=1)
    assert unknown.value.body == {
        "type": "error",
        "error": {
            "type": "not_found_error",
            "message": "The model 'gpt-9' does not exist or you do not have access to it.",
        },
    }
    with pytest.raises(anthropic.BadRequestError, match="maximum context length is 384 tokens") as too_long:
        client.messages.create(model=RECITER, messages=[{"role": "user", "content": "x " * CONTEXT}], max_tokens=1)
    assert too_long.value.request_id is not None


def test_the_key_may_come_in_anthropics_header(strict: WebServer) -> None:
    body = {"model": RECITER, "messages": [QUESTION], "max_tokens": 1}
    refused = post(strict, "/v1/messages", body, **{"x-api-key": "wrong"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert post(strict, "/v1/messages", body, **{"x-api-key": "sesame"}).status_code == 200


def test_other_methods_are_told_in_the_same_envelope(server: WebServer) -> None:
    response = get(server, "/v1/messages")
    assert (response.status_code, response.json()["type"]) == (405, "error")
