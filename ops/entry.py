"""The `headrace` command: the long-running processes become their own program before anything else is loaded.

Four of them start at once on `headrace up`, so what each one loads in vain delays the first token.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

PROGRAMS = {
    "broker": ("ops.broker",),
    "web": ("gunicorn", "-c", str(Path(__file__).with_name("gunicorn.conf.py")), "api.app:create_app()"),
    "worker": ("worker",),
    "batch-worker": ("api.batch",),
}
INTERRUPTED = 130  # what a shell reports of a program ended by Ctrl-C


def main() -> int:
    """Run one subcommand; the exit code."""
    arguments = sys.argv[1:]
    if len(arguments) == 1 and arguments[0] in PROGRAMS:
        become(arguments[0])
    try:
        from ops import cli  # noqa: PLC0415  takes half a second, in which Ctrl-C may come

        return cli.main(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def become(name: str) -> NoReturn:
    """Replace this process, so that signals and the exit code are the program's own."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", *PROGRAMS[name]])


if __name__ == "__main__":
    sys.exit(main())
