"""What operators do to a running stack: ask, drain, count again."""

import json
import subprocess
import sys
from typing import Any

from tests.processes import wait_until
from tests.stack import Stack
from tests.streams import chat, chat_body


def headrace(stack: Stack, *arguments: str) -> Any:
    command = [sys.executable, "-m", "ops.cli", *arguments]
    done = subprocess.run(command, env=stack.environ, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_workers_answer_drain_and_resume(stack: Stack) -> None:
    [(name, answer)] = headrace(stack, "workers", "ping").items()
    assert answer == "pong"
    stats = headrace(stack, "workers", "stats", name)[name]
    assert (stats["num_pages"], stats["num_free_pages"], stats["is_draining"]) == (8192, 8192, False)
    running = chat(stack.url, chat_body(100)).wait_for_chunks(3)
    assert headrace(stack, "workers", "drain") == {name: "draining"}
    wait_until(lambda: stack.get("/readyz").status_code == 503, "readiness says 503")
    refused = chat(stack.url, chat_body(5)).wait_for_end()
    assert refused.error is not None
    assert (refused.status, refused.error["code"]) == (503, "unavailable")
    assert running.wait_for_end().is_done
    assert headrace(stack, "workers", "resume") == {name: "serving"}
    wait_until(lambda: stack.get("/readyz").status_code == 200, "readiness says 200")
    assert chat(stack.url, chat_body(5)).wait_for_end().is_done


def test_the_doctor_counts_the_queue_again(stack: Stack) -> None:
    stack.redis().hset("headrace:{tiny}:counters", "depth:0", 77)
    assert headrace(stack, "doctor") == {"waiting": 0, "running": 0, "requeued": 0}
    assert stack.redis().hget("headrace:{tiny}:counters", "depth:0") == b"0"
