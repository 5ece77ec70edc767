"""``python -m tests.soak``: the full size, by hand. Says how the requests ended; exits with 1 after any fault."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.models import TINY_MODEL, make_tiny_model
from tests.soak.soak import SETTINGS, Findings, Plan, soak
from tests.stack import Stack
from worker.protocol.model_identity import default_model_folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (%(default)g)")
    parser.add_argument("--clients", type=int, default=40, help="how many at once (%(default)d)")
    parser.add_argument("--seed", type=int, default=1, help="the same misfortunes in the same order (%(default)d)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as place:
        model = Path(place) / TINY_MODEL
        make_tiny_model(model, default_model_folder())
        with Stack(Path(place), model, **SETTINGS) as stack:
            stack.start(num_webs=2, num_workers=2)
            findings = soak(stack, Plan(options.seed, options.seconds, options.clients))
            report(findings)
            if findings.faults:
                print(stack.logs())
    return 1 if findings.faults else 0


def report(findings: Findings) -> None:
    for title, counts in (("requests", findings.endings), ("misfortunes", findings.strikes)):
        print(f"{counts.total()} {title}")
        for name, number in counts.most_common():
            print(f"  {number:6d}  {name}")
    for fault in findings.faults:
        print(f"FAULT {fault}")


if __name__ == "__main__":
    sys.exit(main())
