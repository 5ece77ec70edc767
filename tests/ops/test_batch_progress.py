"""A batch's progress tells how much is done, how fast it goes and how long it will take."""

import io
from typing import Any

import pytest

from ops.batch_progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def batch(status: str, completed: int = 0, failed: int = 0, total: int = 100) -> dict[str, Any]:
    return {"status": status, "request_counts": {"completed": completed, "failed": failed, "total": total}}


def bar(done: int) -> str:
    return f"[{'#' * (30 * done // 100):<30}]"


def test_on_a_terminal_one_line_is_written_again_and_again() -> None:
    screen = Terminal()
    progress = Progress(screen)
    progress.show(batch("validating", total=0), 0.0)
    progress.show(batch("in_progress"), 1.0)
    progress.show(batch("in_progress", 10), 2.0)
    progress.show(batch("completed", 98, 2), 9.0)
    progress.close()
    assert screen.getvalue() == "".join(
        "\r\033[K" + text
        for text in (
            "validating",
            f"in_progress {bar(0)} 0/100",
            f"in_progress {bar(10)} 10/100, 5.0 lines/s, 18s left",
            f"completed {bar(100)} 100/100, 2 failed",
        )
    ) + "\n"  # fmt: skip


def test_without_a_terminal_a_line_is_written_now_and_then_and_for_every_state() -> None:
    log = io.StringIO()
    progress = Progress(log)
    for second in range(25):
        progress.show(batch("in_progress", second), float(second))
    progress.show(batch("completed", 100), 25.0)
    progress.close()
    lines = log.getvalue().splitlines()
    assert [line.split()[-1] if "left" not in line else line.split()[-5] for line in lines] == [
        "0/100", "10/100,", "20/100,", "100/100",
    ]  # fmt: skip


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    log = io.StringIO()
    progress = Progress(log)
    for second, done in ((0, 0), (10, 0), (40, 30), (50, 40)):
        progress.show(batch("in_progress", done), float(second))
    assert log.getvalue().splitlines()[-1].endswith("40/100, 1.0 lines/s, 1m00s left")


def test_a_batch_of_which_nothing_is_counted_yet_is_shown_by_its_state() -> None:
    log = io.StringIO()
    Progress(log).show({"status": "validating", "request_counts": None}, 0.0)
    assert log.getvalue() == "validating\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (60, "1m00s"), (3661, "1h01m"), (86400, "24h00m")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
