"""A server under measurement: started by its own command, asked over HTTP, ended with all it started."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.bench.answer import read_answer
from ops.bench.load_generator import exchange, request_bytes
from ops.bench.workload import WARM_UP, Question
from ops.die_with_parent import command_dying_with_parent

CHAT = "/v1/chat/completions"
_START_S = 600.0  # some compile at the first start
_STOP_S = 30.0
_POLL_S = 0.05


class ServerFailed(RuntimeError):
    """The server did not start or did not answer; the message says why and where its log lies."""


@dataclass(frozen=True)
class Launch:
    """How a server is started, and how it is asked."""

    name: str
    command: list[str]
    port: int
    model: str  # its name in requests
    environ: Mapping[str, str] = field(default_factory=dict)  # on top of this process's own
    folder: Path = Path(".")
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunningServer:
    """`first_token_s`: from its start to the first piece of text it sent."""

    launch: Launch
    pid: int
    first_token_s: float

    def request(self, question: Question) -> bytes:
        """The bytes that ask it."""
        return request_of(self.launch, question)


def request_of(launch: Launch, question: Question) -> bytes:
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    return request_bytes(launch.port, CHAT, {**chat_body(launch, question), **streamed})


def chat_body(launch: Launch, question: Question) -> dict[str, Any]:
    """What asks for the whole answer at once."""
    return {
        "model": launch.model,
        "messages": [{"role": "user", "content": question.text}],
        "max_tokens": question.max_tokens,
        "temperature": 0,
        **launch.extra_body,
    }


@contextmanager
def running(launch: Launch, log: Path) -> Iterator[RunningServer]:
    """The server, once it has answered a first question. At the end nothing of it runs. Raises ServerFailed."""
    began_s = time.perf_counter()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command_dying_with_parent(launch.command),
            cwd=launch.folder,
            env={**own_environment(), **launch.environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield RunningServer(launch, process.pid, _first_token_s(launch, process, log) - began_s)
    finally:
        _stop(process)


def end_in_order_when_told() -> None:
    """Make SIGTERM an exception, as SIGINT is one: what was started ends with this process, children of it included."""

    def leave(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not cut the ending short
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def own_environment() -> dict[str, str]:
    """This process's, without the user's settings of Headrace: results are those of the defaults."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    cache = os.environ.get("HEADRACE_CACHE")
    return {**kept, "HEADRACE_CONFIG": os.devnull, **({"HEADRACE_CACHE": cache} if cache else {})}


def _first_token_s(launch: Launch, process: subprocess.Popen[bytes], log: Path) -> float:
    """When the first text came (`time.perf_counter`), after asking again and again while the server starts."""
    give_up_at_s = time.perf_counter() + _START_S
    while True:
        asked_s = time.perf_counter()
        answer = read_answer(asyncio.run(exchange(launch.port, request_of(launch, WARM_UP))))
        if not answer.failure:
            return asked_s + answer.text_times_s[0]
        if process.poll() is not None:
            raise ServerFailed(f"{launch.name} ended with {process.returncode} at its start. {_last_lines(log)}")
        if asked_s > give_up_at_s or answer.failure.startswith("HTTP 4"):
            raise ServerFailed(f"{launch.name} does not answer: {answer.failure}. {_last_lines(log)}")
        time.sleep(_POLL_S)


def _last_lines(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-5:]
    return f"The end of its log ({log}): {json.dumps(lines)}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, then end all that is left of its group."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
