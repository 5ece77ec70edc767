"""Real processes for tests: each with its output in a file, none of them outliving the test run."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ops.broker import broker_command
from ops.die_with_parent import command_dying_with_parent
from ops.ports import is_listening

GENEROUS_S = 180.0
NUM_LOG_LINES = 40


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = GENEROUS_S) -> None:
    """Return as soon as the condition holds. Raises TimeoutError naming `what`."""
    give_up_at = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"waited {deadline_s:g} s for {what}")
        time.sleep(0.02)


def clean_environment(**settings: str) -> dict[str, str]:
    """This process's environment without the user's own Headrace settings, and with the given ones."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return {**kept, "PYTHONUNBUFFERED": "1", "HEADRACE_CONFIG": os.devnull, **settings}


class RunningProcess:
    """A command in a process group of its own, writing to `log`; it dies with the test process."""

    def __init__(self, command: list[str], log: Path, environ: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command_dying_with_parent(command),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll()

    def send(self, number: signal.Signals) -> None:
        """A signal to the leader alone."""
        self._popen.send_signal(number)

    def wait(self, deadline_s: float = GENEROUS_S) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        return self._popen.wait(deadline_s)

    def kill(self) -> None:
        """End it and its children at once, as ``kill -9`` does, and wait for the end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(GENEROUS_S)

    def terminate(self, deadline_s: float = GENEROUS_S) -> int:
        """Ask it to end and wait for that. The exit code."""
        self.send(signal.SIGTERM)
        return self.wait(deadline_s)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def last_lines(self) -> str:
        return "\n".join(self.log_text().splitlines()[-NUM_LOG_LINES:])

    def wait_until(self, condition: Callable[[], bool], what: str, deadline_s: float = GENEROUS_S) -> None:
        """As `wait_until`, but fails at once, with the log's end, when the process is dead."""

        def holds() -> bool:
            if self.exit_code is not None:
                raise AssertionError(f"died with {self.exit_code} before {what}:\n{self.last_lines()}")
            return condition()

        try:
            wait_until(holds, what, deadline_s)
        except TimeoutError as error:
            raise AssertionError(f"{error}; its log ends:\n{self.last_lines()}") from error


def start_broker(folder: Path, port: int) -> RunningProcess:
    """A durable broker as in production; started again on the same folder it has all its data."""
    folder.mkdir(parents=True, exist_ok=True)
    command = broker_command(folder, port, memory_mb=256)
    broker = RunningProcess(command, folder / "broker.log", clean_environment())
    broker.wait_until(lambda: is_listening("127.0.0.1", port), "the broker listens")
    return broker
