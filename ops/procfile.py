"""The Procfile: which processes make up Headrace, one ``name: command`` a line."""

import re
import shlex
from pathlib import Path

_LINE = re.compile(r"(?P<name>[A-Za-z0-9_-]+):\s*(?P<command>\S.*)")


class BadProcfile(ValueError):
    """The Procfile cannot be read; the message names file and line."""


def read_procfile(path: Path) -> dict[str, list[str]]:
    """Command line by process name, in the file's order. Raises BadProcfile."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise BadProcfile(f"{path}: {error.strerror}") from error
    commands: dict[str, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip() == "" or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match["name"] in commands:
            raise BadProcfile(f"{path}:{number}: expected `name: command`, each name once")
        commands[match["name"]] = shlex.split(match["command"])
    return commands
