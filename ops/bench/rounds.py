"""The run: each server has its turn, then all of them again, so that a slow spell of the machine hits every one."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from ops.bench import peers
from ops.bench.answer import read_answer
from ops.bench.bench_model import BenchModel, prepare
from ops.bench.engine_alone import ENGINE, Step, measure_engine, new_task
from ops.bench.load_generator import drive
from ops.bench.machine import foreign_share, pss_bytes, usage, wait_until_quiet
from ops.bench.measurement import Measurement
from ops.bench.options import Options
from ops.bench.own_server import HEADRACE, VARIANTS, Variant, launch_headrace, own_settings
from ops.bench.roofline import Roofline, measure_roofline
from ops.bench.server import Launch, RunningServer, ServerFailed, running
from ops.bench.workload import Workload, selected


@dataclass
class Results:
    """All that was measured. `starts_s`: seconds from start to first token, one for each start."""

    roofline: Roofline
    models: dict[str, BenchModel] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    starts_s: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entrant:
    """A server in the run: what starts it for a model, and the workloads it is given."""

    name: str
    launch: Callable[[BenchModel, Path], Launch]
    workloads: list[Workload]


def run(options: Options, keep: Callable[[Results], object]) -> Results:
    """Measure everything that `options` ask for. What cannot be measured is noted as absent with the reason.

    After each server's turn `keep` gets all results so far, so that an interrupted run is not lost.
    """
    _say("the machine's own limits")
    results = Results(measure_roofline())
    entrants = list(_entrants(options, results))
    for name in options.models:
        model = prepare(name, options.out / "models")
        results.models[model.name] = model
        for number in range(options.num_rounds):
            if number > 0:
                results.roofline = results.roofline.best_of(measure_roofline())
            for entrant in entrants:
                _turn(options, results, model, entrant, number)
                keep(results)
            if HEADRACE in options.servers:
                _engine_turn(options, results, model, number)
                keep(results)
    return results


def _entrants(options: Options, results: Results) -> Iterator[Entrant]:
    """Those that are asked for, have something to do and are installed."""

    def chosen(server: str, suitable: tuple[str, ...]) -> list[Workload]:
        names = [name for name in options.workloads if name in suitable and server in options.servers]
        return selected(names, is_quick=options.is_quick)

    for variant in VARIANTS.values():
        if workloads := chosen(variant.name, variant.workloads):
            yield _own(variant, workloads, options)
    for peer in peers.PEERS.values():
        if workloads := chosen(peer.name, peer.workloads):
            yield from _peer(peer, workloads, results)


def _own(variant: Variant, workloads: list[Workload], options: Options) -> Entrant:
    settings = {**options.settings, **variant.settings}
    return Entrant(variant.name, lambda model, data: launch_headrace(variant.name, model, data, settings), workloads)


def _peer(peer: peers.Peer, workloads: list[Workload], results: Results) -> Iterator[Entrant]:
    try:
        program = peers.find(peer)
    except peers.Absent as reason:
        results.absent[peer.name] = str(reason)
        return
    version = peers.version(peer, program)
    if version not in results.versions:
        results.versions.append(version)
    dtype = "bfloat16" if results.roofline.has_fast_bf16 else "float32"
    yield Entrant(peer.name, lambda model, _: peer.launch(program, model, dtype), workloads)


def _turn(options: Options, results: Results, model: BenchModel, entrant: Entrant, number: int) -> None:
    """Start a server, give it its workloads, stop it."""
    log = options.out / f"{entrant.name.replace(' ', '-')}-{model.name}.log"
    _say(f"round {number + 1}: {entrant.name}, {model.name}")
    with ExitStack() as cleanup:
        data = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        try:
            server = cleanup.enter_context(running(entrant.launch(model, data), log))
        except (peers.Absent, ServerFailed) as reason:
            results.absent[f"{entrant.name}, {model.name}"] = str(reason)
            return
        results.starts_s.setdefault((model.name, entrant.name), []).append(server.first_token_s)
        for workload in entrant.workloads:
            wait_until_quiet(server.pid, options.quiet_limit_s)
            results.measurements.append(measure(server, model.name, workload))


def measure(server: RunningServer, model: str, workload: Workload) -> Measurement:
    """One workload on one running server."""
    requests = [server.request(question) for question in workload.questions(_fresh_seed())]
    before = usage(server.pid)
    exchanges, wall_s = drive(server.launch.port, requests, workload.concurrency)
    share = foreign_share(before, usage(server.pid))
    return Measurement(
        model=model,
        server=server.launch.name,
        workload=workload.name,
        concurrency=workload.concurrency,
        wall_s=wall_s,
        answers=[read_answer(exchange) for exchange in exchanges],
        foreign_share=share,
        pss_bytes=pss_bytes(server.pid),
    )


def _engine_turn(options: Options, results: Results, model: BenchModel, number: int) -> None:
    _say(f"round {number + 1}: {ENGINE}, {model.name}")
    task = new_task(model.name, str(model.folder), options.workloads, _fresh_seed(), is_quick=options.is_quick)
    wait_until_quiet(0, options.quiet_limit_s)
    try:
        report = measure_engine(task, own_settings(model, options.settings))
    except subprocess.CalledProcessError as error:
        results.absent[f"{ENGINE}, {model.name}"] = f"it ended with {error.returncode}; its last words are above"
        return
    results.measurements += report.measurements
    results.steps.setdefault(model.name, []).extend(report.steps)


def _fresh_seed() -> int:
    """Another one at every call, in every run: no prefix cache has seen the prompts."""
    return time.time_ns()


def _say(text: str) -> None:
    print(f"bench | {text}", file=sys.stderr, flush=True)
