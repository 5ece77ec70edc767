"""The forward pass on the lean decoder and on the generic path, timed in turn in a process of its own."""

import subprocess
import sys
from collections.abc import Iterable

import msgspec

from ops.bench.server import own_environment


class Timing(msgspec.Struct, frozen=True):
    """The best time of a batch on each path, in seconds; `least_s` is what reading its bytes takes."""

    name: str
    num_tokens: int
    lean_s: float
    generic_s: float
    least_s: float | None

    @property
    def ratio(self) -> float:
        """How many times as long the generic path takes."""
        return self.generic_s / self.lean_s

    @property
    def row(self) -> str:
        share = "" if self.least_s is None else f"{self.least_s / self.lean_s:.0%}"
        cells = (
            self.name,
            f"{1000 * self.lean_s:.1f}",
            f"{1000 * self.generic_s:.1f}",
            f"{self.ratio:.1f}",
            f"{self.num_tokens / self.lean_s:.0f}",
            share,
        )
        return f"| {' | '.join(cells)} |"


def decode_name(batch: int) -> str:
    """What the timing of a decode step of so many sequences is called."""
    return f"decode, {batch}"


def path_table(timings: Iterable[Timing]) -> str:
    head = "| | lean ms | generic ms | times as fast | tokens/s | of the memory's rate |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(timing.row for timing in timings)])


def measure_paths(folder: str, *, is_quick: bool) -> list[Timing]:
    """Raises subprocess.CalledProcessError, also for a model that the lean decoder does not compute."""
    command = [sys.executable, "-m", "ops.bench.step_time", folder, "--json", *(["--quick"] if is_quick else [])]
    result = subprocess.run(command, stdout=subprocess.PIPE, env=own_environment(), check=True)
    return msgspec.json.decode(result.stdout, type=list[Timing])
