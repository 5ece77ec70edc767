"""The supervisor with real processes."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ops.supervisor import SAME_SIGNAL_S
from tests.processes import RunningProcess, clean_environment, wait_until


class Household:
    """A running supervisor and the diary that its dummies keep."""

    def __init__(self, folder: Path, *dummies: str, through: tuple[str, ...] = ()) -> None:
        self._diary = folder / "diary"
        command = [*through, sys.executable, "-m", "tests.ops.supervise", str(self._diary), *dummies]
        self.process = RunningProcess(command, folder / "log", clean_environment())

    def diary(self) -> list[str]:
        return self._diary.read_text().splitlines() if self._diary.exists() else []

    def notes(self) -> list[str]:
        """The diary without its process ids."""
        return [re.sub(r" pid \d+", " started", line) for line in self.diary()]

    def pids(self, name: str) -> list[int]:
        """All process ids that the dummy has had."""
        return [int(line.split()[-1]) for line in self.diary() if line.startswith(f"{name} pid ")]

    def wait_for(self, note: str, times: int = 1) -> None:
        self.process.wait_until(lambda: self.notes().count(note) >= times, f"{note!r} is in the diary")

    def all_pids(self) -> list[int]:
        return [int(line.split()[-1]) for line in self.diary() if " pid " in line]

    def wait_all_gone(self) -> None:
        wait_until(lambda: not any(is_alive(pid) for pid in self.all_pids()), "all dummies are gone")


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def household(tmp_path: Path) -> Iterator[Callable[..., Household]]:
    households: list[Household] = []

    def make(*dummies: str, through: tuple[str, ...] = ()) -> Household:
        households.append(Household(tmp_path, *dummies, through=through))
        return households[-1]

    yield make
    for each in households:
        each.process.send(signal.SIGTERM)
        each.process.wait()
        each.wait_all_gone()


def test_given_a_stop_signal_then_all_end_one_after_the_other(household: Callable[..., Household]) -> None:
    home = household("broker", "worker", "web")
    for name in ("broker", "worker", "web"):
        home.wait_for(f"{name} started")
    home.process.send(signal.SIGINT)

    assert home.process.wait() == 0
    assert home.notes()[0] == "broker started"
    assert home.notes()[-6:] == [
        "web asked",
        "web ended",
        "worker asked",
        "worker ended",
        "broker asked",
        "broker ended",
    ]
    home.wait_all_gone()


def test_given_output_then_each_line_carries_its_process_name(household: Callable[..., Household]) -> None:
    home = household("broker", "web")
    home.wait_for("web started")
    home.process.wait_until(lambda: "web | web says hello\n" in home.process.log_text(), "the line is shown")

    assert "broker | broker says hello\n" in home.process.log_text()


def test_given_a_killed_process_then_it_comes_back_and_the_others_stay(household: Callable[..., Household]) -> None:
    home = household("broker", "worker=with-child")
    home.wait_for("worker-child started")
    child = home.pids("worker-child")[0]
    os.kill(home.pids("worker")[0], signal.SIGKILL)

    home.wait_for("worker started", times=2)

    assert not is_alive(child)
    assert home.notes().count("broker started") == 1
    assert "headrace | worker was ended by SIGKILL\n" in home.process.log_text()


def test_given_a_deaf_process_then_it_is_killed_after_its_grace_with_all_it_started(
    household: Callable[..., Household],
) -> None:
    home = household("broker", "web=deaf,with-child")
    home.wait_for("web-child started")
    home.process.send(signal.SIGTERM)

    assert home.process.wait() == 0
    assert home.notes()[-3:] == ["web asked", "broker asked", "broker ended"]
    home.wait_all_gone()


def test_given_a_second_stop_signal_then_nobody_is_waited_for(household: Callable[..., Household]) -> None:
    home = household("broker", "web=deaf")
    home.wait_for("web started")
    home.process.send(signal.SIGINT)
    home.wait_for("web asked")
    time.sleep(SAME_SIGNAL_S)  # sooner it would count as the same one arriving twice
    home.process.send(signal.SIGINT)

    assert home.process.wait() == 0
    assert "broker ended" not in home.notes()
    home.wait_all_gone()


def test_given_a_closed_terminal_then_it_stops(household: Callable[..., Household]) -> None:
    home = household("broker", "web")
    home.wait_for("web started")
    home.process.send(signal.SIGHUP)

    assert home.process.wait() == 0
    assert home.notes()[-1] == "broker ended"


def test_given_nohup_then_a_closed_terminal_is_not_heeded(household: Callable[..., Household]) -> None:
    home = household("broker", "web", through=("nohup",))
    home.wait_for("web started")
    home.process.send(signal.SIGHUP)
    os.kill(home.pids("web")[0], signal.SIGKILL)
    home.wait_for("web started", times=2)

    assert "web asked" not in home.notes()


def test_given_a_killed_supervisor_then_nothing_of_it_is_left(household: Callable[..., Household]) -> None:
    home = household("broker", "worker=deaf", "web")
    for name in ("broker", "worker", "web"):
        home.wait_for(f"{name} started")
    os.kill(home.process.pid, signal.SIGKILL)

    home.wait_all_gone()


def test_given_a_process_that_never_starts_then_its_last_words_are_shown_and_the_rest_stopped(
    household: Callable[..., Household],
) -> None:
    home = household("broker=with-child", "worker=ill")

    assert home.process.wait() == 1
    log = home.process.log_text()
    assert log.count("worker | no heart\n") == 3
    assert "headrace | worker keeps dying. The last it said:\nheadrace |     worker says hello\n" in log
    assert "headrace | giving up: worker does not start. Its last lines above say why\n" in log
    assert home.notes()[-2:] == ["broker asked", "broker ended"]
    home.wait_all_gone()


def test_given_a_command_that_does_not_exist_then_its_name_is_said(tmp_path: Path) -> None:
    missing = RunningProcess([str(tmp_path / "missing")], tmp_path / "log", clean_environment())

    assert missing.wait() == 1
    assert missing.log_text() == f"{tmp_path}/missing: No such file or directory\n"
