"""Backfill: how many rows of a step batch work may take. Pure arithmetic, learned from how long steps took.

Beside interactive work, batch work may make steps longer by a share of what they take without it, on average and never
by more than that share or one row at once. Alone it has the machine, in steps short enough that an interactive arrival
waits only briefly: very short ones just after interactive work, longer ones the longer nobody has come. A row is one
token that a step computes, be it of a prompt or of an answer.
"""

import math
from dataclasses import dataclass

ALONE_S = 0.1  # how long a step of batch work alone may take
ALONE_STEPS = 10  # and at least so long as so many steps of one row: a tenth goes into what any step costs
QUIET_SHARE = 0.1  # but no longer than this share of the time since interactive work, for more may come as soon
SOON_STEPS = 2  # though always as long as so many steps of one row, or too little would get done
FIXED_SHARE = 0.03  # of a step that may go into what any step costs, before more rows make it no better
FIRST_ROWS = 16  # rows of the first step of batch work alone
GROWTH = 2  # no step is made larger than so many times the largest one seen
_RISE, _FALL = 0.05, 0.3  # weights of a new time; what disturbs a step only makes it longer, so it counts for less
_MOST_RISE = 2.0  # a disturbance counts for at most so many times what is known


@dataclass
class _Size:
    """Steps of about as many rows: their rows and seconds, averaged with the latest weighing most."""

    num_rows: float
    seconds: float

    def add(self, num_rows: int, seconds: float) -> None:
        seconds = min(seconds, self.seconds * _MOST_RISE)
        weight = _FALL if seconds < self.seconds else _RISE
        self.num_rows += weight * (num_rows - self.num_rows)
        self.seconds += weight * (seconds - self.seconds)


class StepTimes:
    """What steps take, as a line over their rows: `fixed_s`, and `row_s` for each row."""

    def __init__(self) -> None:
        self.fixed_s = 0.0
        self.row_s = 0.0
        self.enough_rows = math.inf  # more of them make steps longer and hardly any better
        self.most_rows = FIRST_ROWS  # that a step should have as yet
        self._sizes: dict[int, _Size] = {}  # by the power of two of the rows

    @property
    def num_sizes(self) -> int:
        """Sizes of steps that are known. One alone says nothing of what a row costs."""
        return len(self._sizes)

    def observe(self, num_rows: int, seconds: float) -> None:
        """A step of `num_rows` rows, at least one, took `seconds`, more than 0."""
        size = self._sizes.get(num_rows.bit_length())
        if size is None:
            self._sizes[num_rows.bit_length()] = _Size(num_rows, seconds)
        else:
            size.add(num_rows, seconds)
        self.most_rows = max(self.most_rows, GROWTH * num_rows)
        self._fit()

    def step_s(self, num_rows: int) -> float:
        return self.fixed_s + num_rows * self.row_s

    def _fit(self) -> None:
        """The line of least relative errors. What is not known yet is taken for expensive, as far as a step may grow.

        To hold rows back, the line is taken as it is: steps that are held back would never prove it wrong.
        """
        points = [(size.num_rows, size.seconds) for size in self._sizes.values()]
        largest = max(points)
        slope = _slope(points)
        self.row_s = max(slope, largest[1] / largest[0] / 2)
        self.fixed_s = _rest(points, self.row_s)
        is_known = self.num_sizes > 1 and slope > 0
        self.enough_rows = _rest(points, slope) / FIXED_SHARE / slope if is_known else math.inf


def _rest(points: list[tuple[float, float]], row_s: float) -> float:
    """Seconds of a step apart from its rows."""
    rests = [max(0.0, seconds - num_rows * row_s) for num_rows, seconds in points]
    weights = [seconds**-2 for _, seconds in points]
    return sum(rest * weight for rest, weight in zip(rests, weights, strict=True)) / sum(weights)


def _slope(points: list[tuple[float, float]]) -> float:
    """Seconds a row. With one size alone, all that a step takes is put down to its rows."""
    if len(points) == 1:
        return points[0][1] / points[0][0]
    weights = [seconds**-2 for _, seconds in points]
    total = sum(weights)
    mean_rows = sum(weight * num_rows for weight, (num_rows, _) in zip(weights, points, strict=True)) / total
    mean_s = sum(weight * seconds for weight, (_, seconds) in zip(weights, points, strict=True)) / total
    spread = sum(weight * (num_rows - mean_rows) ** 2 for weight, (num_rows, _) in zip(weights, points, strict=True))
    shared = sum(
        weight * (num_rows - mean_rows) * (seconds - mean_s)
        for weight, (num_rows, seconds) in zip(weights, points, strict=True)
    )
    return shared / spread if spread else points[0][1] / points[0][0]


class Backfill:
    """Says before each step how many rows batch work may take in it. `slowdown`: the share by which it may be longer.

    What interactive steps grant is saved up to the price of one row, so that batch work gets on, if slowly, even where
    one row takes more than the share of one step.
    """

    def __init__(self, slowdown: float) -> None:
        self.times = StepTimes()
        self._slowdown = slowdown
        self._saved_s = 0.0
        self._quiet_s = math.inf  # that batch work has had alone since the last interactive step

    def grant(self, num_urgent_rows: int) -> int:
        """Rows for batch work in a step with so many interactive rows. Call it once a step, then `spend`."""
        if num_urgent_rows == 0:
            return min(self.rows_beside(0), self._rows_alone(self._soon_s))
        granted_s = self._slowdown * self.times.step_s(num_urgent_rows)
        self._saved_s = min(self._saved_s + granted_s, max(granted_s, self._one_row_s))
        return self._affordable(self._saved_s, num_urgent_rows)

    def spend(self, num_urgent_rows: int, num_batch_rows: int) -> None:
        """What the step took of the grant."""
        if num_urgent_rows:
            self._saved_s = max(0.0, self._saved_s - num_batch_rows * self.times.row_s)
            self._quiet_s = 0.0
        else:
            self._quiet_s += self.times.step_s(num_batch_rows)

    def rows_beside(self, num_urgent_rows: int) -> int:
        """Rows that batch work can count on in steps like this one; one at least, unless it may not slow anything."""
        if num_urgent_rows:
            rows = self._affordable(self._slowdown * self.times.step_s(num_urgent_rows), num_urgent_rows)
            return max(rows, int(self._slowdown > 0))
        return self._rows_alone(max(ALONE_S, ALONE_STEPS * self.times.step_s(1)))

    @property
    def _soon_s(self) -> float:
        """How long an arrival may wait that comes about as soon as the last one did."""
        return max(SOON_STEPS * self.times.step_s(1), QUIET_SHARE * self._quiet_s)

    def _rows_alone(self, longest_s: float) -> int:
        if self.times.num_sizes < 2 or longest_s == math.inf:
            return self.times.most_rows
        return max(1, self._affordable(longest_s - self.times.fixed_s, 0))

    @property
    def _one_row_s(self) -> float:
        return self.times.row_s if self._slowdown else 0.0

    def _affordable(self, seconds: float, num_urgent_rows: int) -> int:
        if self.times.num_sizes == 0:
            return 0
        most = max(0, self.times.most_rows - num_urgent_rows)
        return min(most, int(seconds / self.times.row_s + 1e-6))  # rounding must not take the row that was saved for
