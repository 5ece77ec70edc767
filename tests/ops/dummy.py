"""A process to supervise: ``dummy.py NAME DIARY [ill] [deaf] [with-child]`` writes into DIARY what happens to it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LAST_BREATH_S = 0.3  # long enough to tell one stop after the other from stops side by side


def main(name: str, diary: Path, traits: list[str]) -> None:
    def note(text: str) -> None:
        with diary.open("a") as file:
            file.write(f"{text}\n")

    def end(*_: object) -> None:
        note(f"{name} asked")
        if "deaf" not in traits:
            time.sleep(LAST_BREATH_S)
            note(f"{name} ended")
            os._exit(0)

    signal.signal(signal.SIGTERM, end)
    note(f"{name} pid {os.getpid()}")
    print(f"{name} says hello", flush=True)
    if "ill" in traits:
        sys.exit("no heart")
    if "with-child" in traits:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        note(f"{name}-child pid {child.pid}")
    while True:
        time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
