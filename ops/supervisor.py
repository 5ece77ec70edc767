"""Runs the processes of a Procfile: starts them in order, shows their output, restarts the dead, stops in order."""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from ops.process import Process
from ops.supervision import Act, Plan, Supervision

TICK_S = 0.2
SAME_SIGNAL_S = 1.0  # one Ctrl-C may arrive twice: from the terminal and once more through make
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Probe = Callable[[], bool]
Say = Callable[[str, str], None]  # (who, line)


class Supervisor:
    """`commands` and `probes` go by process name. A process without a probe is ready once it runs."""

    def __init__(
        self,
        commands: Mapping[str, list[str]],
        plans: Sequence[Plan],
        stop_order: Sequence[str],
        environ: Mapping[str, str],
        probes: Mapping[str, Probe],
        say: Say,
    ) -> None:
        self.supervision = Supervision(plans, stop_order)
        self._commands = commands
        self._environ = environ
        self._probes = probes
        self._say = say
        self._processes: dict[str, Process] = {}
        self._selector = selectors.DefaultSelector()
        self._num_stop_signals = 0
        self._last_stop_signal_at = -SAME_SIGNAL_S
        self._exit_code = 0

    def run(self, each_tick: Callable[[], None]) -> int:
        """Until stopped by a signal; `each_tick` is called several times a second. The exit code."""
        with self._signals_wake_us():
            try:
                while not self.supervision.is_over:
                    self.step(time.monotonic())
                    each_tick()
            finally:
                self._kill_all()
        return self._exit_code

    def step(self, now: float) -> None:
        """One turn: output, deaths, signals, readiness, then whatever is due."""
        for key, _ in self._selector.select(TICK_S):
            self._show(key.data)
        self._note_deaths(now)
        self._note_signals()
        for name in self.supervision.not_yet_ready:
            if name not in self._probes or self._probes[name]():
                self.supervision.ready(name)
        for act, name in self.supervision.due(now):
            self._carry_out(act, name)

    def _note_signals(self) -> None:
        if self._num_stop_signals >= 1 and not self.supervision.is_stopping:
            self._say("headrace", "stopping, once what runs has finished; Ctrl-C again stops at once")
            self.supervision.stop()
        if self._num_stop_signals >= 2:
            self._kill_all()

    def _kill_all(self) -> None:
        for process in self._processes.values():
            process.kill_group()

    def _note_deaths(self, now: float) -> None:
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is None:
                continue
            process.kill_group()  # what a dead process left would hold its port or its memory
            if process.fileno() in self._selector.get_map():
                self._selector.unregister(process)
            for line in process.close():
                self._say(name, line)
            del self._processes[name]
            self._say("headrace", f"{name} {_ended(code)}")
            for act, _ in self.supervision.exited(name, now, code):
                self._explain(act, name, process)

    def _explain(self, act: Act, name: str, process: Process) -> None:
        if act is Act.GIVE_UP:
            self._exit_code = 1
            self._say("headrace", f"giving up: {name} does not start. Its last lines above say why")
            return
        self._say("headrace", f"{name} keeps dying. The last it said:")
        for line in process.lines.last:
            self._say("headrace", f"    {line}")

    def _carry_out(self, act: Act, name: str) -> None:
        if act is Act.START:
            process = self._processes[name] = Process(self._commands[name], self._environ)
            self._selector.register(process, selectors.EVENT_READ, name)
            self._say("headrace", f"started {name} (pid {process.pid})")
        elif act is Act.TERMINATE:
            self._say("headrace", f"stopping {name}")
            self._processes[name].terminate()
        elif act is Act.KILL:
            self._processes[name].kill_group()

    def _show(self, name: str | None) -> None:
        if name is None:
            os.read(self._wake_fd, 4096)
            return
        lines = self._processes[name].read()
        if lines is None:  # end of output; the death itself is noticed by polling
            self._selector.unregister(self._processes[name])
            return
        for line in lines:
            self._say(name, line)

    @contextlib.contextmanager
    def _signals_wake_us(self) -> Iterator[None]:
        """Signals are counted; each also ends the selector's wait. The handlers of before come back at the end."""
        self._wake_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        former_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        # nohup has the hang-up ignored, and so it shall stay.
        heeded = [n for n in STOP_SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        former = {number: signal.signal(number, self._count_stop_signal) for number in heeded}
        former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(former_fd)
            self._selector.close()
            os.close(self._wake_fd)
            os.close(write_fd)

    def _count_stop_signal(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last_stop_signal_at >= SAME_SIGNAL_S:
            self._num_stop_signals += 1
            self._last_stop_signal_at = now


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
