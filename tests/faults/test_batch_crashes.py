"""kill -9, in turn, of everything a batch needs, in each of its phases: every line has one row all the same."""

import time
from collections.abc import Iterator
from functools import partial
from typing import cast

import openai
import pytest
from openai.types import Batch

from tests.batches import all_rows, chat_line, create_batch, jsonl, sdk, text_of, wait_for_end, wait_for_rows
from tests.processes import RunningProcess, wait_until
from tests.stack import Stack
from worker.protocol import keys

NUM_LINES = 1000
NUM_PROMPTS = 10


def prompt(number: int) -> str:
    return f"Story {number % NUM_PROMPTS}"


@pytest.fixture
def batch_stack(stack: Stack) -> Stack:
    """With two processes that drive batches: when one is killed the other takes over at once."""
    return with_drivers(stack)


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    with sdk(stack.url) as client:
        yield client


def with_drivers(stack: Stack) -> Stack:
    while sum(process.exit_code is None for process in stack.batches) < 2:
        stack.start_batch()
    return stack


def live_drivers(stack: Stack) -> list[RunningProcess]:
    return [process for process in stack.batches if process.exit_code is None]


def is_ready(driver: RunningProcess) -> bool:
    return "batch worker ready" in driver.log_text()


def kill_drivers(stack: Stack) -> None:
    """Both, so that the one at work is among them."""
    for process in live_drivers(stack):
        process.kill()
    with_drivers(stack)


def kill_drivers_when(stack: Stack, batch: Batch, status: str) -> None:
    """As soon as the batch has that status, or has gone past it."""
    client, key = stack.redis(), f"{keys.prefix('tiny')}batch:{batch.id}"
    seen = (status.encode(), b"completed", b"cancelled")
    give_up_at = time.monotonic() + 120
    while client.hget(key, "status") not in seen:
        assert time.monotonic() < give_up_at, f"the batch is never {status}"
    kill_drivers(stack)


def test_whatever_is_killed_while_a_batch_runs_every_line_has_one_row(
    batch_stack: Stack, client: openai.OpenAI
) -> None:
    stack = batch_stack
    lines = [chat_line(f"{i}", prompt(i), 6) for i in range(NUM_LINES)]
    batch = create_batch(client, jsonl([*lines, chat_line("0", "double"), chat_line("x", model="other")]))
    kill_drivers_when(stack, batch, "validating")
    wait_for_rows(client, batch, 100)
    live_drivers(stack)[0].kill()
    wait_for_rows(client, batch, 250)
    stack.workers[-1].kill()
    stack.start_worker()
    wait_for_rows(client, batch, 400)
    stack.broker.kill()
    stack.start_broker()
    wait_for_rows(client, batch, 600)
    stack.web.process.kill()
    stack.broker.kill()
    kill_drivers(stack)
    stack.start_broker()
    stack.web.restart()
    kill_drivers_when(stack, batch, "finalizing")

    batch = wait_for_end(client, batch)

    assert batch.status == "completed"
    output, errors = all_rows(client, batch)
    assert sorted(row["custom_id"] for row in output) == sorted(f"{i}" for i in range(NUM_LINES))
    assert sorted(row["custom_id"] for row in errors) == ["0", "x"]
    texts = [{text_of(row) for row in output if int(row["custom_id"]) % NUM_PROMPTS == i} for i in range(NUM_PROMPTS)]
    wait_until(lambda: left_over(stack, batch) == [], "nothing but records and files is left")
    assert texts == [{live_text(client, prompt(i))} for i in range(NUM_PROMPTS)]


def live_text(client: openai.OpenAI, content: str) -> str:
    return client.chat.completions.create(**chat_line("", content, 6)["body"]).choices[0].message.content or ""


def left_over(stack: Stack, batch: Batch) -> list[str]:
    """Jobs and parts."""
    prefix = keys.prefix("tiny")
    client = stack.redis()
    jobs = [key.decode() for kind in ("job:*", "out:*") for key in cast(list[bytes], client.keys(prefix + kind))]
    parts = [str(path) for path in (stack.folder / "data").rglob(f"{batch.id}/*")]
    return jobs + parts


def test_given_drivers_killed_while_a_batch_is_cancelled_then_every_line_has_one_row(
    batch_stack: Stack, client: openai.OpenAI
) -> None:
    short = [chat_line(f"{i}", f"Short {i}", 2) for i in range(80)]
    batch = create_batch(client, jsonl([*short, *(chat_line(f"{i}", f"long {i}", 2000) for i in range(80, 300))]))
    wait_for_rows(client, batch, 64)
    client.batches.cancel(batch.id)
    kill_drivers_when(batch_stack, batch, "cancelling")

    batch = wait_for_end(client, batch)

    output, errors = all_rows(client, batch)
    assert batch.status == "cancelled"
    assert len(output) >= 64
    assert sorted(int(row["custom_id"]) for row in (*output, *errors)) == list(range(300))


def test_given_a_broker_that_comes_back_then_batches_go_on_within_seconds(
    batch_stack: Stack, client: openai.OpenAI
) -> None:
    drivers = live_drivers(batch_stack)
    wait_for_end(client, create_batch(client, jsonl([chat_line("a")])))
    for is_crash in (False, True):
        if is_crash:
            batch_stack.broker.kill()
            time.sleep(5)  # an outage longer than the first few tries
            batch_stack.start_broker()
        else:
            batch_stack.restart_broker()
        batch_stack.wait_ready()

        batch = wait_for_end(client, create_batch(client, jsonl([chat_line("a")])), deadline_s=25)

        assert batch.status == "completed"
    assert live_drivers(batch_stack) == drivers, "neither had to be started anew"


def test_given_an_emptied_broker_then_batches_work_again(batch_stack: Stack, client: openai.OpenAI) -> None:
    batch_stack.redis().flushall()
    batch_stack.wait_ready()

    assert wait_for_end(client, create_batch(client, jsonl([chat_line("a")]))).status == "completed"


def test_a_driver_that_is_asked_to_end_does_so_in_order(batch_stack: Stack) -> None:
    for process in live_drivers(batch_stack):
        process.wait_until(partial(is_ready, process), "it is ready")

    assert [process.terminate() for process in live_drivers(batch_stack)] == [0, 0]
