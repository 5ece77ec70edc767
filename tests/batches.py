"""Batches over a live server, as openai-python sees them."""

import json
from collections.abc import Iterable
from typing import Any

import openai
from openai.types import Batch

from tests.processes import GENEROUS_S, wait_until

ENDED = ("completed", "failed", "expired", "cancelled")
CHAT = "/v1/chat/completions"

Json = dict[str, Any]


def sdk(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=8)


def chat_line(custom_id: str, content: str = "Hi", num_tokens: int = 2, **body: Any) -> Json:
    messages = [{"role": "user", "content": content}]
    asked = {"model": "tiny", "messages": messages, "max_tokens": num_tokens, "temperature": 0, **body}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": asked}


def jsonl(lines: Iterable[Json]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def create_batch(client: openai.OpenAI, data: bytes, endpoint: Any = CHAT, window: Any = "24h") -> Batch:
    file = client.files.create(file=("input.jsonl", data), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window=window)


def wait_for_end(client: openai.OpenAI, batch: Batch, deadline_s: float = GENEROUS_S) -> Batch:
    wait_until(lambda: client.batches.retrieve(batch.id).status in ENDED, f"{batch.id} ends", deadline_s)
    return client.batches.retrieve(batch.id)


def wait_for_rows(client: openai.OpenAI, batch: Batch, number: int) -> None:
    """Until so many lines have their row, in either file."""

    def has_them() -> bool:
        counts = client.batches.retrieve(batch.id).request_counts
        return counts is not None and counts.completed + counts.failed >= number

    wait_until(has_them, f"{number} rows of {batch.id}")


def rows_of(client: openai.OpenAI, file_id: str | None) -> list[Json]:
    """Of an output or an error file; none where there is no file."""
    if file_id is None:
        return []
    return [json.loads(row) for row in client.files.content(file_id).content.splitlines()]


def all_rows(client: openai.OpenAI, batch: Batch) -> tuple[list[Json], list[Json]]:
    return rows_of(client, batch.output_file_id), rows_of(client, batch.error_file_id)


def text_of(row: Json) -> str:
    text: str = row["response"]["body"]["choices"][0]["message"]["content"]
    return text
