"""Batches against a live server: its API, a process that drives them and a worker with the tiny model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.batches import (
    Json,
    all_rows,
    chat_line,
    create_batch,
    jsonl,
    rows_of,
    sdk,
    text_of,
    wait_for_end,
    wait_for_rows,
)
from tests.stack import Stack

NUM_PROMPTS = 16
MAX_LINE_BYTES = 20_000
LONG = 2000  # tokens: far more than are made before the test stops them


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path) -> Iterator[Stack]:
    with Stack(
        tmp_path_factory.mktemp("live"), tiny_model_folder, HEADRACE_MAX_BODY_BYTES=str(MAX_LINE_BYTES)
    ) as stack:
        stack.start_batch()
        yield stack.start()


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with sdk(stack.url) as client:
        yield client


def prompt(number: int) -> str:
    return f"Tell me about river number {number % NUM_PROMPTS}."


def lines_of_all_kinds() -> tuple[bytes, dict[str, int], dict[str, tuple[Any, ...]]]:
    """A file of two thousand lines; the prompts of the good ones by custom_id, and what is wrong with the others."""
    good: dict[str, int] = {}
    bad: dict[str, tuple[Any, ...]] = {}
    parts = [b"\xef\xbb\xbf"]

    def add(custom_id: str, line: Json | bytes, problem: tuple[Any, ...] | None = None, end: bytes = b"\n") -> None:
        parts.append((line if isinstance(line, bytes) else jsonl([line]).rstrip()) + end)
        if problem is None:
            good[custom_id] = len(good)
        else:
            bad[custom_id] = problem

    for i in range(200):
        for _ in range(4):
            add(name := f"good-{len(good)}", chat_line(name, prompt(len(good))))
        add(name := f"good-{len(good)}", chat_line(name, prompt(len(good))), end=b"\r\n" if i % 2 else b"\n\n  \r\n")
        add(f"json-{i}", b'{"custom_id": "json-%d", "method": ' % i, (None, "invalid_json_line"))
        add(f"url-{i}", chat_line(f"url-{i}") | {"url": "/v1/completions"}, (None, "invalid_url"))
        add(f"model-{i}", chat_line(f"model-{i}", model="other"), (404, "model_not_found"))
        add(f"stream-{i}", chat_line(f"stream-{i}", stream=True), (400, "unsupported_parameter"))
        kind: tuple[str, str, tuple[Any, ...]] = (
            (f"large-{i}", "x" * MAX_LINE_BYTES, (None, "line_too_large")),
            (f"long-{i}", "a b " * 2500, (400, "context_length_exceeded")),
        )[i % 2]
        add(kind[0], chat_line(kind[0], kind[1]), kind[2])
    return b"".join(parts), good, bad


def test_given_two_thousand_good_and_bad_lines_then_output_and_error_file_are_exact(client: openai.OpenAI) -> None:
    data, good, bad = lines_of_all_kinds()
    repeated = [chat_line(f"good-{i}", "another") for i in range(0, 10)]
    batch = create_batch(client, data + jsonl(repeated))
    live = [
        client.chat.completions.create(**chat_line("", prompt(number))["body"]) for number in range(NUM_PROMPTS)
    ]  # fmt: skip

    batch = wait_for_end(client, batch)

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 2010, "completed": 1000, "failed": 1010}
    output, errors = all_rows(client, batch)
    assert {row["custom_id"]: text_of(row) for row in output} == {
        custom_id: live[number % NUM_PROMPTS].choices[0].message.content for custom_id, number in good.items()
    }
    assert all(row["error"] is None and row["response"]["status_code"] == 200 for row in output)
    assert len({row["id"] for row in (*output, *errors)}) == 2010
    assert len({row["response"]["request_id"] for row in output}) == len(output) == 1000
    assert {(row["custom_id"], *problem_of(row)) for row in errors} == {
        *((custom_id, *problem) for custom_id, problem in bad.items()),
        *((line["custom_id"], None, "duplicate_custom_id") for line in repeated),
    }
    assert len(errors) == 1010
    assert batch.usage is not None
    assert batch.usage.output_tokens == sum(row["response"]["body"]["usage"]["completion_tokens"] for row in output)
    file = client.files.retrieve(batch.output_file_id or "")
    assert (file.purpose, file.bytes) == ("batch_output", len(client.files.content(file.id).content))


def problem_of(row: Json) -> tuple[int | None, str]:
    if row["response"] is None:
        return None, row["error"]["code"]
    assert row["error"] is None
    return row["response"]["status_code"], row["response"]["body"]["error"]["code"]


def test_given_a_batch_cancelled_midway_then_what_was_done_is_kept_and_the_rest_is_told(client: openai.OpenAI) -> None:
    lines = [
        chat_line(f"{i}", f"Short {i}", 2) if i < 100 else chat_line(f"{i}", f"long {i}", LONG) for i in range(400)
    ]
    batch = create_batch(client, jsonl(lines))
    wait_for_rows(client, batch, 64)

    assert client.batches.cancel(batch.id).status == "cancelling"
    batch = wait_for_end(client, batch, 30)

    assert batch.status == "cancelled"
    output, errors = all_rows(client, batch)
    assert {row["error"]["code"] for row in errors} == {"batch_cancelled"}
    assert len(output) >= 64
    assert sorted(int(row["custom_id"]) for row in (*output, *errors)) == list(range(400))
    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'cancelled'"):
        client.batches.cancel(batch.id)


def test_given_a_batch_whose_time_is_over_then_what_was_done_is_kept_and_the_rest_expires(
    client: openai.OpenAI,
) -> None:
    lines = [chat_line(f"{i}", f"Short {i}", 2) if i < 20 else chat_line(f"{i}", f"long {i}", LONG) for i in range(300)]

    batch = wait_for_end(client, create_batch(client, jsonl(lines), window="8s"), 60)

    assert batch.status == "expired"
    assert (batch.expired_at or 0) >= (batch.expires_at or 0)
    output, errors = all_rows(client, batch)
    assert {row["error"]["code"] for row in errors} == {"batch_expired"}
    assert output
    assert sorted(int(row["custom_id"]) for row in (*output, *errors)) == list(range(300))


def test_given_responses_then_they_are_stored_and_can_be_gone_on_from(client: openai.OpenAI) -> None:
    def line(custom_id: str, **body: Any) -> Json:
        asked = {"model": "tiny", "max_output_tokens": 3, "temperature": 0, **body}
        return {"custom_id": custom_id, "method": "POST", "url": "/v1/responses", "body": asked}

    first = create_batch(client, jsonl([line("a", input="Hi"), line("b", input="Hi", store=False)]), "/v1/responses")
    output, _ = all_rows(client, wait_for_end(client, first))
    stored, unstored = (
        next(row["response"]["body"] for row in output if row["custom_id"] == custom_id) for custom_id in "ab"
    )

    assert client.responses.retrieve(stored["id"]).output_text == stored["output"][0]["content"][0]["text"]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored["id"])
    second = [
        line("next", input="And then?", previous_response_id=stored["id"]),
        line("lost", input="And then?", previous_response_id=unstored["id"]),
        line("background", input="Hi", background=True),
    ]
    batch = wait_for_end(client, create_batch(client, jsonl(second), "/v1/responses"))
    output, errors = all_rows(client, batch)
    (went_on,) = output
    live = client.responses.create(
        model="tiny", input="And then?", previous_response_id=stored["id"], max_output_tokens=3, temperature=0
    )
    assert went_on["custom_id"] == "next"
    assert went_on["response"]["body"]["output"][0]["content"][0]["text"] == live.output_text
    assert {row["custom_id"]: problem_of(row) for row in errors} == {
        "lost": (400, "previous_response_not_found"),
        "background": (400, "unsupported_parameter"),
    }


def test_given_embeddings_then_each_line_is_refused_as_a_live_request_is(client: openai.OpenAI) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"model": "tiny", "input": "x"}}

    batch = wait_for_end(client, create_batch(client, jsonl([line]), "/v1/embeddings"))

    assert (batch.status, batch.output_file_id) == ("completed", None)
    (row,) = rows_of(client, batch.error_file_id)
    assert problem_of(row) == (400, "model_not_supported")
