"""Given OpenAI's own Python SDK, everything it offers for completions works against this server."""

import asyncio
from collections.abc import Iterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from tests.api.http.client import CHAT, COMPLETIONS, answered, chat_body, completion_body, text_of
from tests.api.http.reciter import CONTEXT, FILLER, RECITER
from tests.stack import WebServer

QUESTION: ChatCompletionUserMessageParam = {"role": "user", "content": "Where does the river rise?"}
NUM = 12


@pytest.fixture
def client(server: WebServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def expected(server: WebServer) -> str:
    return text_of(answered(server, CHAT, chat_body(num_tokens=NUM)))


def test_a_whole_chat(client: OpenAI, expected: str) -> None:
    completion = client.chat.completions.create(model=RECITER, messages=[QUESTION], max_tokens=NUM, temperature=0)
    assert completion.choices[0].message.content == expected
    assert (completion.choices[0].message.role, completion.choices[0].finish_reason) == ("assistant", "length")
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + NUM
    assert completion.object == "chat.completion"


def test_a_streamed_chat_with_usage(client: OpenAI, expected: str) -> None:
    with client.chat.completions.create(
        model=RECITER, messages=[QUESTION], max_tokens=NUM, temperature=0, stream=True,
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == expected
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_stream_helper_accumulates_the_same_completion(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model=RECITER, messages=[QUESTION], stop=" hills", temperature=0, stream_options={"include_usage": True}
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert kinds == {"chunk", "content.delta", "content.done"}
    assert final.choices[0].message.content == " that gave it a name. The river rises in the"
    assert (final.choices[0].message.role, final.choices[0].finish_reason) == ("assistant", "stop")
    assert final.usage is not None
    assert final.usage.completion_tokens == NUM


def test_the_stream_helper_says_that_the_limit_cut_an_answer(client: OpenAI) -> None:
    with (
        client.chat.completions.stream(model=RECITER, messages=[QUESTION], max_tokens=2, temperature=0) as stream,
        pytest.raises(openai.LengthFinishReasonError) as caught,
    ):
        stream.get_final_completion()
    assert caught.value.completion.choices[0].message.content == " that gave"


def test_completions_whole_and_streamed_with_several_prompts(client: OpenAI, server: WebServer) -> None:
    prompts = [[7], [7, 8], [7, 8, 9]]
    expected = [choice["text"] for choice in answered(server, COMPLETIONS, completion_body(prompts, 6))["choices"]]
    whole = client.completions.create(model=RECITER, prompt=prompts, max_tokens=6, temperature=0)
    assert [choice.text for choice in whole.choices] == expected
    texts = [""] * 3
    with client.completions.create(model=RECITER, prompt=prompts, max_tokens=6, temperature=0, stream=True) as stream:
        for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == expected


def test_the_raw_response_shows_our_headers(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=RECITER, messages=[QUESTION], max_tokens=1, extra_headers={"X-Request-Id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.headers["x-headrace-job"] == raw.parse().id


def test_the_streaming_response_can_be_read_by_line(client: OpenAI) -> None:
    with client.chat.completions.with_streaming_response.create(
        model=RECITER, messages=[QUESTION], max_tokens=1, stream=True
    ) as response:
        lines = list(response.iter_lines())
    assert lines[-2:] == ["data: [DONE]", ""]


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [RECITER, "gpt-4o", "org/model"]
    assert client.models.retrieve(RECITER).owned_by == "headrace"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-7")
    assert caught.value.code == "model_not_found"


def test_errors_come_as_the_sdks_own_classes(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=RECITER, messages=[])
    assert (bad.value.status_code, bad.value.param, bad.value.code) == (400, "messages", None)
    assert bad.value.type == "invalid_request_error"
    assert bad.value.request_id
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-7", messages=[QUESTION], stream=True)
    assert (unknown.value.param, unknown.value.code) == ("model", "model_not_found")
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=RECITER, prompt=[FILLER] * CONTEXT)
    assert long.value.code == "context_length_exceeded"


def test_a_wrong_key_is_an_authentication_error(strict: WebServer) -> None:
    with OpenAI(base_url=f"{strict.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
    with OpenAI(base_url=f"{strict.url}/v1/", api_key="sesame", max_retries=0) as client:
        assert client.chat.completions.create(model=RECITER, messages=[QUESTION], max_tokens=1).choices


def test_a_timeout_in_a_stream_is_an_api_error_after_the_text_so_far(tiny: WebServer) -> None:
    with OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.chat.completions.create(
            model="tiny", messages=[QUESTION], max_tokens=4000, temperature=0, stream=True, extra_body={"timeout": 0.5}
        )
        with pytest.raises(openai.APIError) as caught:
            list(stream)
        assert (caught.value.code, caught.value.type) == ("timeout", "timeout_error")
        with pytest.raises(openai.InternalServerError) as whole:
            client.completions.create(model="tiny", prompt="x", max_tokens=4000, extra_body={"timeout": 0.2})
        assert (whole.value.status_code, whole.value.code) == (504, "timeout")


def test_leaving_a_stream_early_cancels_it(tiny: WebServer) -> None:
    with (
        OpenAI(base_url=f"{tiny.url}/v1", api_key="none") as client,
        client.chat.completions.create(model="tiny", messages=[QUESTION], max_tokens=4000, stream=True) as stream,
    ):
        assert next(iter(stream)).choices[0].delta.role == "assistant"


def test_the_async_client_streams_many_at_once(server: WebServer, expected: str) -> None:
    async def one(client: AsyncOpenAI) -> str:
        text = ""
        stream = await client.chat.completions.create(
            model=RECITER, messages=[QUESTION], max_tokens=NUM, temperature=0, stream=True
        )
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        return text

    async def all_of_them() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            whole = await client.chat.completions.create(
                model=RECITER, messages=[QUESTION], max_tokens=NUM, temperature=0
            )
            text = whole.choices[0].message.content or ""
            completion = await client.completions.create(model=RECITER, prompt=[7], max_tokens=1, temperature=0)
            assert completion.choices[0].text == " river"
            return [text, *await asyncio.gather(*(one(client) for _ in range(12)))]

    assert asyncio.run(all_of_them()) == [expected] * 13
