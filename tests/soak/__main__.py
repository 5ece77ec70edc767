"""``python -m tests.soak``: the full size, by hand. Says how the requests ended; exits with 1 after any fault."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.models import TINY_MODEL, make_tiny_model
from tests.soak import worker_load
from tests.soak.soak import SETTINGS, Findings, Plan, soak
from tests.soak.worker_load import TOLERATED_MIB, LoadPlan, load
from tests.stack import Stack
from worker.protocol.model_identity import default_model_folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (%(default)g)")
    parser.add_argument("--load-seconds", type=float, default=300.0, help="how long one worker is loaded (%(default)g)")
    parser.add_argument("--clients", type=int, default=40, help="how many at once (%(default)d)")
    parser.add_argument("--seed", type=int, default=1, help="the same misfortunes in the same order (%(default)d)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as place:
        model = Path(place) / TINY_MODEL
        make_tiny_model(model, default_model_folder(), "bfloat16")
        with Stack(Path(place), model, **SETTINGS) as stack:
            stack.start(num_webs=2, num_workers=2)
            findings = soak(stack, Plan(options.seed, options.seconds, options.clients))
            report(findings)
            if findings.faults:
                print(stack.logs())
        is_flat = loaded(Path(place), model, LoadPlan(options.seed, options.load_seconds))
    return 0 if is_flat and not findings.faults else 1


def loaded(place: Path, model: Path, plan: LoadPlan) -> bool:
    """Whether a worker under load kept nothing. Without time there is no load."""
    if plan.duration_s <= 0:
        return True
    folder = place / "load"
    folder.mkdir()
    with Stack(folder, model, **worker_load.SETTINGS) as stack:
        found = load(stack.start(), plan)
    print(f"load: {dict(found.endings)}, pages {found.pages} of {found.num_pages}, "
          f"{found.resident_mib:.1f} MiB resident, {found.growth_mib:+.1f} since the warm-up")  # fmt: skip
    are_back = found.pages["free"] + found.pages["cached"] == found.num_pages
    return are_back and found.growth_mib < TOLERATED_MIB and found.endings.keys() == {"succeeded", "cancelled"}


def report(findings: Findings) -> None:
    for title, counts in (("requests", findings.endings), ("misfortunes", findings.strikes)):
        print(f"{counts.total()} {title}")
        for name, number in counts.most_common():
            print(f"  {number:6d}  {name}")
    for fault in findings.faults:
        print(f"FAULT {fault}")


if __name__ == "__main__":
    sys.exit(main())
