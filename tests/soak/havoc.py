"""What befalls a stack: its processes die, end in order, or stand still for a while."""

import contextlib
import os
import random
import signal
import time
from collections import Counter

from tests.processes import RunningProcess
from tests.stack import Stack, WebServer


class Havoc:
    """One random misfortune a call. Everything it takes away it brings back, so the stack serves again soon."""

    def __init__(self, stack: Stack, seed: str, longest_pause_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self._stack = stack
        self._random = random.Random(seed)
        self._longest_pause_s = longest_pause_s

    def strike(self) -> None:
        misfortunes = [
            self._kill_worker, self._end_worker, self._pause_worker, self._kill_web, self._pause_web,
            self._kill_broker, self._end_broker, self._pause_broker,
        ]  # fmt: skip
        misfortune = self._random.choice(misfortunes)
        self.counts[misfortune.__name__.strip("_").replace("_", " ")] += 1
        misfortune()

    def _kill_worker(self) -> None:
        self._a_worker().kill()
        self._stack.start_worker()

    def _end_worker(self) -> None:
        worker = self._a_worker()
        self._stack.start_worker()
        worker.terminate()

    def _pause_worker(self) -> None:
        self._pause(self._a_worker())

    def _kill_web(self) -> None:
        web = self._a_web()
        web.process.kill()
        web.restart()

    def _pause_web(self) -> None:
        self._pause(self._a_web().process)

    def _kill_broker(self) -> None:
        self._stack.broker.kill()
        self._stack.start_broker()

    def _end_broker(self) -> None:
        self._stack.restart_broker()

    def _pause_broker(self) -> None:
        self._pause(self._stack.broker)

    def _pause(self, process: RunningProcess) -> None:
        """Stand still, children included, as in a debugger, a snapshot or a swapping machine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(self._random.uniform(0.1, self._longest_pause_s))
            os.killpg(process.pid, signal.SIGCONT)

    def _a_worker(self) -> RunningProcess:
        return self._random.choice([worker for worker in self._stack.workers if worker.exit_code is None])

    def _a_web(self) -> WebServer:
        return self._random.choice(self._stack.webs)
