"""Policies: which of the waiting sequences may be admitted now."""

from collections.abc import Sequence as ListLike
from typing import Protocol

from worker.engine.sequence import Sequence


class Policy(Protocol):
    def eligible(self, waiting: ListLike[Sequence], running: ListLike[Sequence]) -> list[Sequence]:
        """Those of `waiting` that may be admitted, in the same order. Not empty while only `waiting` holds any."""


class Continuous:
    """Everyone, at any step."""

    def eligible(self, waiting: ListLike[Sequence], running: ListLike[Sequence]) -> list[Sequence]:
        del running
        return list(waiting)


class StaticBatches:
    """A batch is formed from what waits and runs to its end before the next one is. Only good for comparison."""

    def __init__(self, max_sequences: int) -> None:
        self._max_sequences = max_sequences
        self._members: set[Sequence] = set()

    def eligible(self, waiting: ListLike[Sequence], running: ListLike[Sequence]) -> list[Sequence]:
        self._members.intersection_update([*waiting, *running])
        if not self._members:
            self._members.update(waiting[: self._max_sequences])
        return [sequence for sequence in waiting if sequence in self._members]


POLICIES = ("continuous", "static")


def make_policy(name: str, max_sequences: int) -> Policy:
    """The policy of this name, one of POLICIES."""
    policies: dict[str, Policy] = {"continuous": Continuous(), "static": StaticBatches(max_sequences)}
    return policies[name]
