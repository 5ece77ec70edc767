"""Scripts that drive the server with tools of environments of their own, each printing what it saw as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.api.http.client import DEADLINE_S
from tests.api.http.reciter import RECITER

TESTS = Path(__file__).parents[1]
OPENAI_2 = Path(sys.prefix) / "openai2" / "bin" / "python"  # put there by ``make test``


def seen_by_node(script: str, base_url: str) -> Any:
    """Node.js is installed beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return _seen(["node", script, base_url, RECITER], TESTS / "node", {"PATH": path})


def seen_by_openai_2(script: str, base_url: str) -> Any:
    return _seen([str(OPENAI_2), "-W", "ignore", script, base_url, RECITER], TESTS / "openai2", {})


def _seen(command: list[str], folder: Path, environ: dict[str, str]) -> Any:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
