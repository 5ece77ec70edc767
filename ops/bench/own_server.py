"""Headrace itself under measurement: all of `headrace up` on free ports."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ops.bench.bench_model import BenchModel
from ops.bench.server import Launch
from ops.bench.workload import BASIC, WORKLOADS
from ops.cli import ROOT
from ops.ports import free_port

HEADRACE = "headrace"
STATIC = "headrace static"
INT8 = "headrace int8"
POLICY_WORKLOAD = "mixed"  # answers of different lengths, where the policy makes a difference


@dataclass(frozen=True)
class Variant:
    """One way to run Headrace: what it is set to, and the workloads for which that matters."""

    name: str
    workloads: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(HEADRACE, tuple(WORKLOADS)),
        Variant(STATIC, (POLICY_WORKLOAD,), {"HEADRACE_POLICY": "static"}),
        Variant(INT8, BASIC, {"HEADRACE_QUANTIZATION": "int8"}),
    )
}


def launch_headrace(name: str, model: BenchModel, data: Path, settings: Mapping[str, str]) -> Launch:
    """Broker, API and worker under the supervisor, with HEADRACE_ `settings` on top of the defaults."""
    port = free_port()
    return Launch(
        name,
        [sys.executable, "-m", "ops.entry", "up"],
        port,
        model.name,
        {**own_settings(model, settings), "HEADRACE_PORT": str(port), "HEADRACE_DATA": str(data)},
        folder=ROOT,
    )


def own_settings(model: BenchModel, settings: Mapping[str, str]) -> dict[str, str]:
    """What the engine gets, under the supervisor as without it."""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "HEADRACE_MODEL": str(model.folder),
        "HEADRACE_BROKER_PORT": "0",
        "HEADRACE_WORKER_METRICS_PORT": "-1",
        **settings,
    }
