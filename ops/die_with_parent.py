"""Run a command that is killed when the process that started it dies, however that dies.

``python -I -S die_with_parent.py PARENT_PID COMMAND [ARGUMENT...]`` asks the kernel and becomes the command. A program
of its own, because code between fork and exec (preexec_fn) may deadlock in a process that has threads. Where the kernel
has no such wish (not Linux) it only becomes the command.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. Kept across exec, not by children."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def command_dying_with_parent(command: list[str]) -> list[str]:
    """The command line that runs `command` as a child that dies with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(parent: int, command: list[str]) -> None:
    die_with_parent()
    if os.getppid() != parent:  # it died before the kernel was asked
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
