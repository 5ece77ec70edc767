"""One supervised process: a process group of its own, and its output line by line."""

import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping

from ops.die_with_parent import command_dying_with_parent

NUM_LAST_LINES = 20
LONGEST_LINE_BYTES = 16384  # a longer one is shown in pieces
_READ_BYTES = 65536


class Lines:
    """Cuts a stream of bytes into lines and remembers the last of them."""

    def __init__(self) -> None:
        self.last: deque[str] = deque(maxlen=NUM_LAST_LINES)
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """The lines that `data` completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST_LINE_BYTES:
            whole.append(self._rest[:LONGEST_LINE_BYTES])
            self._rest = self._rest[LONGEST_LINE_BYTES:]
        for line in whole:
            yield self._keep(line)

    def flush(self) -> Iterator[str]:
        """The line that the stream ended in, if any."""
        if self._rest:
            yield self._keep(self._rest)
            self._rest = b""

    def _keep(self, line: bytes) -> str:
        text = line.decode("utf-8", "replace").rstrip("\r")
        self.last.append(text)
        return text


class Process:
    """A running command. It dies with this process, and its whole group dies with it."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self._popen = subprocess.Popen(
            command_dying_with_parent(command),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C in the terminal reaches the supervisor alone, which then stops in order
        )
        assert self._popen.stdout is not None
        self._output = self._popen.stdout
        os.set_blocking(self._output.fileno(), False)
        self.lines = Lines()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def fileno(self) -> int:
        """The descriptor of its output, to be selected for reading."""
        return self._output.fileno()

    def read(self) -> list[str] | None:
        """Lines that have come; None when nothing will ever come again."""
        data = self._read_bytes()
        return None if data == b"" else list(self.lines.feed(data or b""))

    def _read_bytes(self) -> bytes | None:
        """What has come, empty at the end of the output, None when there is nothing yet."""
        try:
            return os.read(self._output.fileno(), _READ_BYTES)
        except BlockingIOError:
            return None

    def poll(self) -> int | None:
        """Its exit code (negative: the signal that ended it), or None while it runs."""
        return self._popen.poll()

    def terminate(self) -> None:
        """Ask it to end. Only the leader: how its own children end is its business."""
        self._popen.terminate()

    def kill_group(self) -> None:
        """End it and all it started, at once. Also right after its death, for what it left behind."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def close(self) -> list[str]:
        """Lines it left unread; nothing can be read afterwards."""
        left: list[str] = []
        while data := self._read_bytes():
            left += self.lines.feed(data)
        left += self.lines.flush()
        self._output.close()
        return left
