"""The supervisor's decisions, with time made up."""

import os

import pytest

from ops.supervision import Act, Plan, Supervision

START, TERMINATE, KILL = Act.START, Act.TERMINATE, Act.KILL


@pytest.fixture
def supervision() -> Supervision:
    plans = [
        Plan("broker", grace_s=15),
        Plan("web", after=("broker",), grace_s=30),
        Plan("worker", after=("broker",), grace_s=20),
    ]
    return Supervision(plans, stop_order=("web", "worker", "broker"))


def bring_up(supervision: Supervision, now: float = 0.0) -> None:
    supervision.due(now)
    supervision.ready("broker")
    supervision.due(now)
    supervision.ready("web")
    supervision.ready("worker")


def test_given_a_broker_that_does_not_answer_then_nobody_else_starts(supervision: Supervision) -> None:
    assert supervision.due(0) == [(START, "broker")]
    assert supervision.due(100) == []
    assert supervision.not_yet_ready == ["broker"]


def test_given_a_broker_that_answers_then_the_others_start_together(supervision: Supervision) -> None:
    supervision.due(0)
    supervision.ready("broker")

    assert supervision.due(1) == [(START, "web"), (START, "worker")]
    assert supervision.due(2) == []


def test_given_a_broker_that_dies_once_ready_then_the_others_are_left_running(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.exited("broker", 100, code=1)

    assert supervision.due(100.4) == []
    assert supervision.due(100.5) == [(START, "broker")]


def test_given_deaths_in_a_row_then_the_waits_double_up_to_fifteen_seconds(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.all_up()
    now, waits = 1.0, []
    for _ in range(8):
        supervision.exited("worker", now, code=1)
        died_at = now
        while not supervision.due(now):
            now += 0.125
        waits.append(now - died_at)

    assert waits == [0.5, 1, 2, 4, 8, 15, 15, 15]


def test_given_a_thousand_deaths_then_the_wait_is_still_fifteen_seconds(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.all_up()
    for number in range(1500):
        supervision.exited("worker", 0, code=1)
        if number < 1499:
            supervision.due(1e6)

    assert supervision.due(14.9) == []
    assert supervision.due(15) == [(START, "worker")]


def test_given_a_healthy_minute_then_the_next_wait_is_short_again(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.all_up()
    supervision.exited("worker", 1, code=1)
    supervision.exited("worker", 2, code=1)
    assert supervision.due(4) == [(START, "worker")]

    supervision.exited("worker", 64, code=1)

    assert supervision.due(64.5) == [(START, "worker")]


def test_given_three_deaths_before_all_was_up_then_it_reports_gives_up_and_stops(supervision: Supervision) -> None:
    bring_up(supervision)
    assert supervision.exited("worker", 1, code=1) == []
    supervision.due(2)
    assert supervision.exited("worker", 3, code=1) == []
    supervision.due(10)

    assert supervision.exited("worker", 11, code=1) == [(Act.REPORT, "worker"), (Act.GIVE_UP, "worker")]
    assert supervision.due(12) == [(TERMINATE, "web")]


def test_given_one_that_cannot_start_as_it_is_set_then_it_is_not_tried_again(supervision: Supervision) -> None:
    bring_up(supervision)

    assert supervision.exited("worker", 1, code=os.EX_CONFIG) == [(Act.GIVE_UP, "worker")]
    assert supervision.due(2) == [(TERMINATE, "web")]


def test_given_one_whose_settings_went_bad_after_all_was_up_then_it_is_tried_for_ever(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.all_up()

    assert supervision.exited("worker", 1, code=os.EX_CONFIG) == []
    assert supervision.due(2) == [(START, "worker")]


def test_given_deaths_after_all_was_up_then_each_third_is_reported_and_none_ends_it(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.all_up()
    reports = []
    for number in range(1, 7):
        reports.append(supervision.exited("worker", number * 20, code=1))
        supervision.due(number * 20 + 15)

    assert reports == [[], [], [(Act.REPORT, "worker")], [], [], [(Act.REPORT, "worker")]]
    assert not supervision.is_stopping


def test_given_a_stop_then_each_waits_for_the_one_before(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.stop()

    assert supervision.due(10) == [(TERMINATE, "web")]
    assert supervision.due(39) == []
    supervision.exited("web", 39, code=1)
    assert supervision.due(39) == [(TERMINATE, "worker")]
    supervision.exited("worker", 40, code=1)
    assert supervision.due(40) == [(TERMINATE, "broker")]
    assert not supervision.is_over
    supervision.exited("broker", 41, code=1)
    assert supervision.due(41) == []
    assert supervision.is_over


def test_given_a_process_that_does_not_end_then_it_alone_is_killed_after_its_grace(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.stop()
    supervision.due(10)

    assert supervision.due(39.9) == []
    assert supervision.due(40) == [(KILL, "web")]
    supervision.exited("web", 40.1, code=1)
    assert supervision.due(40.1) == [(TERMINATE, "worker")]


def test_given_a_stop_while_one_waits_for_its_restart_then_it_is_not_started(supervision: Supervision) -> None:
    bring_up(supervision)
    supervision.exited("web", 5, code=1)
    supervision.stop()

    assert supervision.due(100) == [(TERMINATE, "worker")]


def test_given_a_stop_before_anything_ran_then_it_is_over(supervision: Supervision) -> None:
    supervision.stop()

    assert supervision.is_over
    assert supervision.due(0) == []
