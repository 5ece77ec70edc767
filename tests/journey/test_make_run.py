"""`make run` as a user types it: one command, a chat, a crash, a Ctrl-C."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ops.cli import ROOT
from ops.readiness import ask
from tests.processes import RunningProcess, clean_environment, wait_until

INSTALL_DEADLINE_S = 1200.0  # outside `make test` it may first have to install everything
NUM_PIECES = 8  # of the answer, after which the test has seen enough

pytestmark = pytest.mark.timeout(2 * INSTALL_DEADLINE_S)


@pytest.fixture
def make_run(tmp_path: Path, smollm2_folder: Path) -> Iterator[RunningProcess]:
    """`make run` in this repository, in the environment that `make` has made, with the models of the user's cache."""
    has_own_environment = (Path(sys.prefix) / ".installed").exists()
    command = ["make", "-C", str(ROOT), "run", *([f"VENV={sys.prefix}"] if has_own_environment else [])]
    environ = clean_environment(
        HEADRACE_CACHE=str(smollm2_folder.parent.parent),
        HEADRACE_DATA=str(tmp_path / "data"),
        HEADRACE_PORT="0",
        HEADRACE_BROKER_PORT="0",
        HEADRACE_WORKER_METRICS_PORT="0",
        HEADRACE_KV_MEMORY_GIB="0.25",
    )
    for variable in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # those of the make that runs the tests
        environ.pop(variable, None)
    process = RunningProcess(command, tmp_path / "log", environ)
    yield process
    if process.exit_code is None:
        process.kill()  # the supervisor among them, and so all it runs


def test_given_one_command_then_a_chat_streams_a_killed_worker_returns_and_ctrl_c_leaves_nothing(
    make_run: RunningProcess,
) -> None:
    make_run.wait_until(lambda: "Ctrl-C stops everything." in make_run.log_text(), "all is up", INSTALL_DEADLINE_S)
    curl = re.search(r"^  (curl -N .*)$", make_run.log_text(), re.MULTILINE)
    assert curl is not None
    assert len(streamed_pieces(shlex.split(curl[1]))) == NUM_PIECES

    os.kill(processes_of(make_run, "-m worker")[0].pid, signal.SIGKILL)
    make_run.wait_until(lambda: make_run.log_text().count('"worker ready"') == 2, "the worker is back")
    port = int(curl[1].partition("http://127.0.0.1:")[2].partition("/")[0])
    make_run.wait_until(lambda: ask("127.0.0.1", port) is None, "the API knows it")
    assert len(streamed_pieces(shlex.split(curl[1]))) == NUM_PIECES

    all_processes = psutil.Process(make_run.pid).children(recursive=True)
    assert len(all_processes) >= 6  # supervisor, broker, gunicorn with two workers, engine, the driver of batches
    os.killpg(make_run.pid, signal.SIGINT)
    make_run.wait()

    wait_until(lambda: not any(process.is_running() for process in all_processes), "nothing is left running")
    stopped = re.findall(r"^headrace \| (\w+) exited with code (\d+)$", make_run.log_text(), re.MULTILINE)
    assert stopped == [("web", "0"), ("batch", "0"), ("worker", "0"), ("broker", "0")]


def processes_of(make_run: RunningProcess, words: str) -> list[psutil.Process]:
    """The processes under `make run` whose command line holds these words."""
    children = psutil.Process(make_run.pid).children(recursive=True)
    return [process for process in children if words in " ".join(process.cmdline())]


def streamed_pieces(curl: list[str]) -> list[str]:
    """The first pieces of text that the server streams to the command; then the command is ended."""
    pieces: list[str] = []
    with subprocess.Popen([*curl, "--silent", "--max-time", "120"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("data: {"):
                pieces += [
                    choice["delta"]["content"]
                    for choice in json.loads(line.removeprefix("data: "))["choices"]
                    if choice["delta"].get("content")
                ]
            if len(pieces) >= NUM_PIECES:
                break
        process.kill()
    return pieces
