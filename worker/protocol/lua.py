"""Loads the Lua scripts: one verb a file, with the shared parts spliced in where they are named."""

from pathlib import Path
from typing import Any

import redis

_FOLDER = Path(__file__).parent / "scripts"
_INCLUDE = "-- include "
VERBS = (
    "admit", "claim", "renew", "publish_step", "finish", "cancel", "requeue", "requeue_expired", "watch", "rebuild",
    "pass_bell", "store_response", "store_answer", "forget_response",
)  # fmt: skip


def script_text(verb: str) -> str:
    lines = (_FOLDER / f"{verb}.lua").read_text().splitlines()
    return "\n".join(script_text(line.removeprefix(_INCLUDE)) if line.startswith(_INCLUDE) else line for line in lines)


class Scripts:
    """The scripts of one pool, called with its prefix as their only key."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._prefix = prefix
        self._scripts = {verb: client.register_script(script_text(verb)) for verb in VERBS}

    def run(self, verb: str, *args: bytes | str | int) -> Any:
        return self._scripts[verb](keys=[self._prefix], args=args)
