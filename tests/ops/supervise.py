"""A supervisor of dummies: ``supervise.py DIARY NAME[=TRAIT,...] ...`` in the order of starting; stops in reverse."""

import os
import sys
from pathlib import Path

from ops.supervision import Plan
from ops.supervisor import Supervisor

GRACE_S = 4.0


def main(diary: Path, arguments: list[str]) -> int:
    traits = {name: rest.split(",") if rest else [] for name, _, rest in (word.partition("=") for word in arguments)}
    dummy = str(Path(__file__).with_name("dummy.py"))
    commands = {name: [sys.executable, dummy, name, str(diary), *traits[name]] for name in traits}
    first = next(iter(traits))
    plans = [Plan(name, after=() if name == first else (first,), grace_s=GRACE_S) for name in traits]

    def has_started() -> bool:
        return diary.exists() and f"{first} pid" in diary.read_text()

    def say(who: str, line: str) -> None:
        print(f"{who} | {line}", flush=True)

    supervisor = Supervisor(commands, plans, list(reversed(traits)), os.environ, {first: has_started}, say)

    if not any("ill" in each for each in traits.values()):
        supervisor.supervision.all_up()
    return supervisor.run(lambda: None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
