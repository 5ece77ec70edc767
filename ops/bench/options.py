"""What ``make bench`` can be told: ``make bench ARGS="--quick"``."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.bench.bench_model import RANDOM_MODEL
from ops.bench.own_server import VARIANTS
from ops.bench.peers import PEERS
from ops.bench.workload import WORKLOADS
from worker.protocol.model_identity import DEFAULT_MODEL

ADMISSION = "admission"
SERVERS = (*VARIANTS, *PEERS)
ALL_WORKLOADS = (*WORKLOADS, ADMISSION)


@dataclass(frozen=True)
class Options:
    """`settings`: HEADRACE_ variables for our own server. `quiet_limit_s`: how long to wait for a quiet machine.

    `repeat_limit_s`: a workload that took longer is measured once, however many rounds there are.
    """

    is_quick: bool
    is_everything: bool
    num_rounds: int
    models: list[str]
    servers: list[str]
    workloads: list[str]
    settings: dict[str, str]
    quiet_limit_s: float
    repeat_limit_s: float
    out: Path


def read_options(arguments: Sequence[str] | None = None) -> Options:
    """From the command line. Ends the process with a message where that makes no sense."""
    parser = _parser()
    given = parser.parse_args(arguments)
    for name, chosen, known in (
        ("--servers", given.servers, SERVERS),
        ("--workloads", given.workloads, ALL_WORKLOADS),
    ):
        if unknown := set(chosen) - set(known):
            parser.error(f"{name}: no {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return Options(
        is_quick=given.quick,
        is_everything=given.everything,
        num_rounds=given.rounds or (1 if given.quick else 2),
        models=given.models,
        servers=given.servers,
        workloads=given.workloads,
        settings=dict(given.set),
        quiet_limit_s=given.wait_quiet,
        repeat_limit_s=given.repeat_limit,
        out=given.out.resolve(),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make bench", description="Compare Headrace with the peers that are installed, in turn, on this machine."
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small workloads, one round: shows that it runs, proves little")
    add("--everything", action="store_true", help="give every peer every workload, which takes much longer")
    add("--rounds", type=int, default=0, help="how often each server has its turn (2; 1 with --quick)")
    add(
        "--models",
        type=_names,
        default=[DEFAULT_MODEL],
        help=f"of {DEFAULT_MODEL}, {RANDOM_MODEL} (random weights, made on the fly) and model folders",
    )
    add("--servers", type=_names, default=list(SERVERS), help=f"of {', '.join(SERVERS)}")
    add("--workloads", type=_names, default=list(ALL_WORKLOADS), help=f"of {', '.join(ALL_WORKLOADS)}")
    add("--set", type=_setting, action="append", default=[], help="a setting of Headrace: HEADRACE_DTYPE=float32")
    add("--wait-quiet", type=float, default=60.0, metavar="S", help="wait so long for other programs to calm down")
    add("--repeat-limit", type=float, default=30.0, metavar="S", help="what took longer is not measured again")
    add("--out", type=Path, default=Path("build/bench"), help="folder of the results (%(default)s)")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.startswith("HEADRACE_"):
        raise argparse.ArgumentTypeError("expected HEADRACE_NAME=value")
    return name, value
