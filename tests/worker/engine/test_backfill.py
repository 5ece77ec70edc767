"""The backfill's arithmetic against machines whose steps take a known time."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine.backfill import (
    ALONE_S,
    ALONE_STEPS,
    FIRST_ROWS,
    FIXED_SHARE,
    GROWTH,
    QUIET_SHARE,
    SOON_STEPS,
    Backfill,
)

STEP_TOKENS = 512


@dataclass
class Machine:
    """Steps on it take `fixed_s`, and `row_s` for each row; with what they took it teaches a backfill."""

    fixed_s: float
    row_s: float
    slowdown: float = 0.1

    def __post_init__(self) -> None:
        self.backfill = Backfill(self.slowdown)

    def step_s(self, num_rows: int) -> float:
        return self.fixed_s + num_rows * self.row_s

    def run(self, *sizes: int) -> None:
        for num_rows in sizes:
            self.backfill.times.observe(num_rows, self.step_s(num_rows))

    def step(self, num_urgent_rows: int, num_batch_rows: int = STEP_TOKENS) -> int:
        """A step with as many of the batch rows as may join; how many those are."""
        joined = min(self.backfill.grant(num_urgent_rows), num_batch_rows, STEP_TOKENS - num_urgent_rows)
        self.backfill.spend(num_urgent_rows, joined)
        self.run(num_urgent_rows + joined)
        return joined


machines = st.builds(Machine, st.floats(0.0, 0.5), st.floats(1e-5, 5e-3), st.sampled_from([0.0, 0.05, 0.1, 0.5]))


def test_where_a_row_costs_little_many_join_and_where_it_costs_much_few_do() -> None:
    cheap, dear = Machine(0.010, 0.000_02), Machine(0.010, 0.002)
    for machine in (cheap, dear):
        machine.run(1, 16, 64, 500)
    assert cheap.backfill.rows_beside(4) == 50
    assert [dear.step(30) for _ in range(5)] == [3, 3, 3, 3, 3]


def test_when_one_row_costs_more_than_a_step_grants_then_it_joins_when_enough_is_saved() -> None:
    machine = Machine(0.010, 0.005)
    machine.run(1, 16, 64, 500)
    assert [machine.step(2) for _ in range(9)] == [0, 0, 1, 0, 0, 1, 0, 0, 1]


def test_a_share_of_nothing_keeps_batch_work_out_while_there_is_interactive_work() -> None:
    machine = Machine(0.010, 0.001, slowdown=0.0)
    assert [machine.step(4) for _ in range(9)] == [0] * 9
    assert (machine.backfill.rows_beside(4), machine.step(0) > 0) == (0, True)


def test_while_nothing_is_known_batch_work_starts_small_and_alone() -> None:
    backfill = Backfill(0.1)
    assert (backfill.grant(4), backfill.grant(0)) == (0, FIRST_ROWS)
    backfill.times.observe(FIRST_ROWS, 1.0)
    assert backfill.grant(0) == GROWTH * FIRST_ROWS


def test_alone_its_steps_are_as_long_as_an_arrival_may_wait() -> None:
    machine = Machine(0.005, 0.002)
    for _ in range(9):
        machine.step(0)
    assert machine.step(0) == 47


def test_where_one_row_takes_long_then_steps_alone_are_longer_so_that_little_is_wasted() -> None:
    machine = Machine(0.5, 0.01)
    machine.run(1, 16, 64, 500)
    assert machine.step(0) == 460


def test_just_after_interactive_work_steps_alone_are_short_and_grow_with_the_time_that_nobody_comes() -> None:
    machine = Machine(0.010, 0.001)
    machine.run(*[1, 16, 64, 500] * 3)
    machine.step(4)
    longest_s, quiet_s = ALONE_STEPS * machine.step_s(1), 0.0
    lengths_s = []
    for _ in range(60):
        lengths_s.append(machine.step_s(machine.step(0)))
        allowed_s = min(longest_s, max(SOON_STEPS * machine.step_s(1), QUIET_SHARE * quiet_s))
        assert allowed_s - 2 * machine.row_s < lengths_s[-1] <= allowed_s + 1e-9
        quiet_s += lengths_s[-1]
    assert lengths_s[0] < 0.25 * lengths_s[-1]
    machine.step(4)
    assert machine.step_s(machine.step(0)) == lengths_s[0]


def test_rows_are_enough_when_what_any_step_costs_is_a_trifle() -> None:
    machine = Machine(0.015, 0.002)
    assert machine.backfill.times.enough_rows == math.inf
    machine.run(*[1, 16, 64, 500] * 3)
    assert machine.backfill.times.enough_rows == pytest.approx(0.015 / FIXED_SHARE / 0.002)
    free = Machine(0.015, 0.0)
    free.run(*[1, 16, 64, 500])
    assert free.backfill.times.enough_rows > 10**6


def test_a_slow_first_prompt_does_not_keep_later_ones_apart_for_long() -> None:
    machine = Machine(0.010, 0.000_01)
    machine.run(1)
    machine.backfill.times.observe(300, 3.0)
    machine.run(1, 100, 1, 1)  # a step with the one prompt that is let in
    assert machine.backfill.times.enough_rows > 10_000


def test_a_disturbed_step_changes_little() -> None:
    machine = Machine(0.010, 0.002)
    machine.run(*[1, 16, 64, 500] * 3)
    before = machine.backfill.rows_beside(250)
    machine.backfill.times.observe(64, 100.0)
    assert abs(machine.backfill.rows_beside(250) - before) <= 2


@settings(max_examples=200, deadline=None)
@given(machines, st.lists(st.tuples(st.integers(1, 300), st.integers(0, 300)), min_size=1, max_size=80))
def test_on_any_machine_interactive_work_is_slowed_by_its_share_and_at_most_one_row(
    machine: Machine, steps: list[tuple[int, int]]
) -> None:
    machine.run(*[2**power for power in range(10)] * 2)
    slowdown = machine.slowdown
    alone_s = taken_s = 0.0
    for num_urgent_rows, num_batch_rows in steps:
        step_s = machine.step_s(num_urgent_rows + machine.step(num_urgent_rows, num_batch_rows))
        assert step_s <= machine.step_s(num_urgent_rows) * (1 + slowdown) * 1.02 + machine.row_s
        alone_s += machine.step_s(num_urgent_rows)
        taken_s += step_s
    assert taken_s <= alone_s * (1 + slowdown) * 1.02 + machine.row_s


@settings(max_examples=50, deadline=None)
@given(machines, st.lists(st.integers(0, STEP_TOKENS), max_size=20), st.integers(0, 300))
def test_whatever_was_before_batch_work_gets_on_unless_it_may_not(
    machine: Machine, before: list[int], num_urgent_rows: int
) -> None:
    for num_rows in before:
        machine.step(num_rows)
    num_joined = sum(machine.step(num_urgent_rows) for _ in range(300))
    assert (num_joined > 0) == (num_urgent_rows == 0 or machine.slowdown > 0)


@settings(max_examples=100, deadline=None)
@given(machines)
def test_alone_no_step_is_longer_than_an_arrival_may_wait_on_that_machine(machine: Machine) -> None:
    longest_s = max(ALONE_S, ALONE_STEPS * machine.step_s(1))
    num_rows = [machine.step(0) for _ in range(30)]
    assert max(map(machine.step_s, num_rows[2:])) <= longest_s * 1.05
    assert num_rows[-1] == pytest.approx(
        min(STEP_TOKENS, (longest_s - machine.fixed_s) / machine.row_s), rel=0.6, abs=1
    )
