"""What a supervisor has to do, without doing it: it is told what happened and when, and says what to do next.

One process a name. Starts wait for those before them, deaths are answered with restarts ever further apart, a stop
takes the names down one after the other. A process that cannot be started as it is set (os.EX_CONFIG) before everything
has once been up is not tried again. Times are seconds of any one monotonic clock.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 15.0
HEALTHY_AFTER_S = 60.0
DEATHS_TO_REPORT = 3


class Act(Enum):
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"
    REPORT = "report"  # it keeps dying: show its last words
    GIVE_UP = "give up"  # it kept dying before everything had once been up


@dataclass(frozen=True)
class Plan:
    """One process: it starts once those in `after` are ready, and has `grace_s` to end after a TERMINATE."""

    name: str
    after: tuple[str, ...] = ()
    grace_s: float = 10.0


@dataclass
class _State:
    plan: Plan
    start_at: float = 0.0
    started_at: float | None = None  # None: not running
    was_ready: bool = False
    num_deaths: int = 0  # since it last ran healthily
    kill_at: float | None = None  # None: not asked to stop

    @property
    def is_running(self) -> bool:
        return self.started_at is not None


class Supervision:
    """Plans in the order of starting; `stop_order` names all of them in the order of stopping."""

    def __init__(self, plans: Sequence[Plan], stop_order: Sequence[str]) -> None:
        self._states = {plan.name: _State(plan) for plan in plans}
        self._stop_order = tuple(stop_order)
        self._has_been_up = False
        self._is_stopping = False

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def is_over(self) -> bool:
        """Stopped, and nothing runs any more."""
        return self._is_stopping and not any(state.is_running for state in self._states.values())

    @property
    def not_yet_ready(self) -> list[str]:
        """Running processes that have never been ready."""
        return [name for name, state in self._states.items() if state.is_running and not state.was_ready]

    def ready(self, name: str) -> None:
        """The process answers; those that wait for it may start. Once is enough: a restart stops nobody else."""
        self._states[name].was_ready = True

    def all_up(self) -> None:
        """The whole serves. From now on a dying process is restarted for ever."""
        self._has_been_up = True

    def stop(self) -> None:
        self._is_stopping = True

    def exited(self, name: str, now: float, code: int) -> list[tuple[Act, str]]:
        """The process ended with this exit code. Says whether that is worth a report, or reason to give up."""
        state = self._states[name]
        lived_s = now - (state.started_at if state.started_at is not None else now)
        state.started_at = state.kill_at = None
        if self._is_stopping:
            return []
        state.num_deaths = 1 if lived_s >= HEALTHY_AFTER_S else state.num_deaths + 1
        state.start_at = now + min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(state.num_deaths - 1, 10))
        if code == os.EX_CONFIG and not self._has_been_up:
            self.stop()
            return [(Act.GIVE_UP, name)]
        if state.num_deaths % DEATHS_TO_REPORT != 0:
            return []
        if self._has_been_up:
            return [(Act.REPORT, name)]
        self.stop()
        return [(Act.REPORT, name), (Act.GIVE_UP, name)]

    def due(self, now: float) -> list[tuple[Act, str]]:
        """What is to be done now; the caller does it. Ask again soon."""
        return self._due_stops(now) if self._is_stopping else self._due_starts(now)

    def _due_starts(self, now: float) -> list[tuple[Act, str]]:
        acts = []
        for name, state in self._states.items():
            may_start = all(self._states[other].was_ready for other in state.plan.after)
            if not state.is_running and may_start and now >= state.start_at:
                state.started_at = now
                acts.append((Act.START, name))
        return acts

    def _due_stops(self, now: float) -> list[tuple[Act, str]]:
        for name in self._stop_order:
            state = self._states[name]
            if not state.is_running:
                continue
            if state.kill_at is None:
                state.kill_at = now + state.plan.grace_s
                return [(Act.TERMINATE, name)]
            return [(Act.KILL, name)] if now >= state.kill_at else []
        return []
