"""Native threads for work that would hold up every other stream of the process."""

import os
from collections.abc import Callable
from typing import TypeVar

from gevent import monkey
from gevent.threadpool import ThreadPool

ResultT = TypeVar("ResultT")


class NativePool:
    """At most `num_threads` calls at a time; the others wait without holding up the event loop.

    Outside a gevent process there is no event loop to spare, and a call just runs.
    """

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._owner: tuple[int, ThreadPool] | None = None

    def run(self, call: Callable[[], ResultT]) -> ResultT:
        """The call's result, or what it raised."""
        if not monkey.is_module_patched("threading"):
            return call()
        outcome: list[ResultT | Exception] = self._threads().apply(_outcome, (call,))
        result = outcome[0]
        if isinstance(result, Exception):
            raise result
        return result

    def _threads(self) -> ThreadPool:
        """The threads of this process: those started before a fork do not exist in the child."""
        if self._owner is None or self._owner[0] != os.getpid():
            self._owner = (os.getpid(), ThreadPool(self._num_threads))
        return self._owner[1]


def _outcome(call: Callable[[], ResultT]) -> list[ResultT | Exception]:
    """Carries an exception as a value: gevent prints a traceback for each one that leaves a pool's thread."""
    try:
        return [call()]
    except Exception as error:
        return [error]
