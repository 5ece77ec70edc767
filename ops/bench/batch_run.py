"""A batch on a running server: how long it takes alone, and what interactive clients feel of one that is underway."""

import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ops.batch_client import BatchClient, Json
from ops.batch_progress import ENDED
from ops.bench.answer import Answer
from ops.bench.load_generator import HOST
from ops.bench.server import CHAT, Launch, chat_body
from ops.bench.workload import Question

_LIMIT_S = 600.0
_POLL_S = 0.1
_WINDOW = "24h"


class BatchFailed(RuntimeError):
    """The batch did not do what was measured; the message says what it did."""


def run_batch(launch: Launch, lines: Sequence[Question]) -> tuple[list[Answer], float]:
    """The answers, all of which come with the batch's end, and the seconds from its creation to that."""
    client, began_s = _client(launch), time.perf_counter()
    batch_id = _create(client, launch, lines)
    batch = _wait(client, batch_id, lambda batch: batch["status"] in ENDED)
    wall_s = time.perf_counter() - began_s
    if batch["status"] != "completed":
        raise BatchFailed(f"the batch ended as {batch['status']}: {batch.get('errors')}")
    output = io.BytesIO()
    client.download(batch["output_file_id"], output)
    return [_answer(line, wall_s) for line in output.getvalue().splitlines()], wall_s


@contextmanager
def underway(launch: Launch, lines: Sequence[Question]) -> Iterator[None]:
    """A batch that has its first answers, until it is cancelled. Raises BatchFailed where it had ended before that."""
    client = _client(launch)
    batch_id = _create(client, launch, lines)
    _wait(client, batch_id, lambda batch: batch["request_counts"]["completed"] > 0 or batch["status"] in ENDED)
    yield
    status = client.batch(batch_id)["status"]
    if status in ENDED:
        raise BatchFailed(f"the batch was {status} before the others had their answers")
    client.cancel(batch_id)
    _wait(client, batch_id, lambda batch: batch["status"] in ENDED)


def _client(launch: Launch) -> BatchClient:
    return BatchClient(f"http://{HOST}:{launch.port}", "")


def _create(client: BatchClient, launch: Launch, lines: Sequence[Question]) -> str:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        file = Path(folder) / "lines.jsonl"
        with file.open("w") as stream:
            for number, question in enumerate(lines):
                row = {"custom_id": str(number), "method": "POST", "url": CHAT, "body": chat_body(launch, question)}
                stream.write(json.dumps(row) + "\n")
        batch = client.create(client.upload(file)["id"], CHAT, _WINDOW, {})
    return str(batch["id"])


def _wait(client: BatchClient, batch_id: str, is_reached: Callable[[Json], bool]) -> Json:
    give_up_at_s = time.perf_counter() + _LIMIT_S
    while not is_reached(batch := client.batch(batch_id)):
        if time.perf_counter() > give_up_at_s:
            raise BatchFailed(f"the batch is {batch['status']} after {_LIMIT_S:g} s")
        time.sleep(_POLL_S)
    return batch


def _answer(line: bytes, wall_s: float) -> Answer:
    response = json.loads(line)["response"]
    usage = response["body"].get("usage") or {}
    if response["status_code"] != 200:
        return Answer(failure=f"HTTP {response['status_code']}")
    return Answer(
        text_times_s=[wall_s],
        num_output_tokens=usage["completion_tokens"],
        num_prompt_tokens=usage["prompt_tokens"],
        num_cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        is_counted=True,
    )
