"""How far a batch is, told while it goes on: a bar on a terminal, a line now and then elsewhere."""

import time
from collections import deque
from typing import Any, TextIO

_WIDTH = 30  # characters of the bar
_WINDOW_S = 30.0  # over which the rate is taken
_LINE_EVERY_S = 10.0  # where there is no terminal
ENDED = ("completed", "failed", "expired", "cancelled")

Json = dict[str, Any]


class Progress:
    """Shows a batch each time it is looked at."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._is_terminal = output.isatty()
        self._seen: deque[tuple[float, int]] = deque()
        self._shown_s = -_LINE_EVERY_S
        self._last_status = ""

    def show(self, batch: Json, now_s: float | None = None) -> None:
        """`now_s` is of the monotonic clock."""
        now_s = time.monotonic() if now_s is None else now_s
        done = num_done(batch)
        self._seen.append((now_s, done))
        while now_s - self._seen[0][0] > _WINDOW_S:
            self._seen.popleft()
        text = self._text(batch, done)
        if self._is_terminal:
            self._output.write(f"\r\033[K{text}")
        elif batch["status"] != self._last_status or now_s - self._shown_s >= _LINE_EVERY_S:
            self._output.write(text + "\n")
            self._shown_s, self._last_status = now_s, batch["status"]
        self._output.flush()

    def close(self) -> None:
        if self._is_terminal:
            self._output.write("\n")
            self._output.flush()

    def _text(self, batch: Json, done: int) -> str:
        counts, status = batch["request_counts"], batch["status"]
        total = counts["total"] if counts else 0
        if not total:
            return str(status)
        bar = "#" * (_WIDTH * done // total)
        text = f"{status} [{bar:<{_WIDTH}}] {done}/{total}"
        if counts["failed"]:
            text += f", {counts['failed']} failed"
        rate = self._rate()
        if rate > 0 and status == "in_progress":
            text += f", {rate:.1f} lines/s, {duration((total - done) / rate)} left"
        return text

    def _rate(self) -> float:
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def num_done(batch: Json) -> int:
    counts = batch["request_counts"] or {"completed": 0, "failed": 0}
    return int(counts["completed"] + counts["failed"])


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"
