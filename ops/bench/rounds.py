"""The run: each server has its turn, then all of them again, so that a slow spell of the machine hits every one."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ops.batch_client import Refused
from ops.bench import peers
from ops.bench.answer import Answer, read_answer
from ops.bench.batch_run import BatchFailed, run_batch, underway
from ops.bench.bench_model import BenchModel, prepare
from ops.bench.engine_task import ENGINE, ENGINE_INT8, ENGINE_WORKLOADS, measure_engine, new_task
from ops.bench.load_generator import drive
from ops.bench.machine import foreign_share, pss_bytes, usage, wait_until_quiet
from ops.bench.measurement import Measurement
from ops.bench.options import Options
from ops.bench.own_server import HEADRACE, INT8, VARIANTS, Variant, launch_headrace, own_settings
from ops.bench.path_times import measure_paths
from ops.bench.results import Results, Start
from ops.bench.roofline import measure_roofline
from ops.bench.server import Launch, RunningServer, ServerFailed, running
from ops.bench.workload import COMPARED, Workload, selected

_ENGINE_OF = {HEADRACE: ENGINE, INT8: ENGINE_INT8}
PATHS = "lean and generic path"


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
    wait_until_quiet(0, options.quiet_limit_s)
    results = Results(roofline=measure_roofline())
    entrants = list(_entrants(options, results))
    for name in options.models:
        model = prepare(name, options.out / "models")
        results.models[model.name] = model
        for number in range(options.num_rounds):
            for turn in _turns(options, results, model, entrants, number):
                turn()
                keep(results)
    return results


def _turns(
    options: Options, results: Results, model: BenchModel, entrants: list[Entrant], number: int
) -> Iterator[Callable[[], None]]:
    """One round: each server, and what is measured in process."""
    if number > 0:
        yield lambda: _roofline_turn(options, results)
    for entrant in entrants:
        yield partial(_turn, options, results, model, entrant, number)
    for server, engine in _ENGINE_OF.items():
        if server in options.servers:
            yield partial(_engine_turn, options, results, model, engine, number)
    if HEADRACE in options.servers and number == 0:
        yield lambda: _paths_turn(options, results, model)


def _entrants(options: Options, results: Results) -> Iterator[Entrant]:
    """Those that are asked for, have something to do and are installed."""

    def chosen(server: str, suitable: tuple[str, ...]) -> list[Workload]:
        names = [name for name in options.workloads if name in suitable and server in options.servers]
        return selected(names, is_quick=options.is_quick)

    for variant in VARIANTS.values():
        if workloads := chosen(variant.name, variant.workloads):
            yield _own(variant, workloads, options)
    for peer in peers.PEERS.values():
        if workloads := chosen(peer.name, COMPARED if options.is_everything else peer.workloads):
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
        wait_until_quiet(0, options.quiet_limit_s)
        try:
            server = cleanup.enter_context(running(entrant.launch(model, data), log))
        except (peers.Absent, ServerFailed) as reason:
            results.absent[f"{entrant.name}, {model.name}"] = str(reason)
            return
        results.starts.append(Start(model.name, entrant.name, server.first_token_s))
        for workload in entrant.workloads:
            if _is_due(options, results, (model.name, entrant.name, workload.name)):
                wait_until_quiet(server.pid, options.quiet_limit_s)
                try:
                    results.measurements.append(measure(server, model.name, workload))
                except (BatchFailed, Refused) as reason:
                    results.absent[f"{entrant.name}, {model.name}, {workload.name}"] = str(reason)


def _is_due(options: Options, results: Results, key: tuple[str, str, str]) -> bool:
    """What has taken long has met fast and slow spells of the machine alike, and is not measured again."""
    return all(
        one.wall_s <= options.repeat_limit_s
        for one in results.measurements
        if (one.model, one.server, one.workload) == key
    )


def measure(server: RunningServer, model: str, workload: Workload) -> Measurement:
    """One workload on one running server. Raises BatchFailed."""
    lines = workload.lines(_fresh_seed())
    requests = [server.request(question) for question in workload.questions(_fresh_seed())]
    with underway(server.launch, lines) if lines and requests else nullcontext():
        before = usage(server.pid)
        answers, wall_s = (
            _answers(server, requests, workload.concurrency) if requests else run_batch(server.launch, lines)
        )
        share = foreign_share(before, usage(server.pid))
    return Measurement(
        model=model,
        server=server.launch.name,
        workload=workload.name,
        concurrency=workload.concurrency,
        wall_s=wall_s,
        answers=answers,
        foreign_share=share,
        pss_bytes=pss_bytes(server.pid),
    )


def _answers(server: RunningServer, requests: list[bytes], concurrency: int) -> tuple[list[Answer], float]:
    exchanges, wall_s = drive(server.launch.port, requests, concurrency)
    return [read_answer(exchange) for exchange in exchanges], wall_s


def _engine_turn(options: Options, results: Results, model: BenchModel, engine: str, number: int) -> None:
    _say(f"round {number + 1}: {engine}, {model.name}")
    names = [
        name
        for name in ENGINE_WORKLOADS
        if engine == ENGINE and name in options.workloads and _is_due(options, results, (model.name, engine, name))
    ]
    task = new_task(engine, model.name, str(model.folder), names, _fresh_seed(), is_quick=options.is_quick)
    wait_until_quiet(0, options.quiet_limit_s)
    try:
        report = measure_engine(task, own_settings(model, options.settings))
    except subprocess.CalledProcessError as error:
        results.absent[f"{engine}, {model.name}"] = f"it ended with {error.returncode}; its last words are above"
        return
    results.measurements += report.measurements
    results.steps += report.steps


def _paths_turn(options: Options, results: Results, model: BenchModel) -> None:
    _say(f"{PATHS}, {model.name}")
    wait_until_quiet(0, options.quiet_limit_s)
    try:
        results.timings[model.name] = measure_paths(str(model.folder), is_quick=options.is_quick)
    except subprocess.CalledProcessError as error:
        results.absent[f"{PATHS}, {model.name}"] = f"it ended with {error.returncode}; its last words are above"


def _roofline_turn(options: Options, results: Results) -> None:
    wait_until_quiet(0, options.quiet_limit_s)
    results.roofline = results.roofline.best_of(measure_roofline())


def _fresh_seed() -> int:
    """Another one at every call, in every run: no prefix cache has seen the prompts."""
    return time.time_ns()


def _say(text: str) -> None:
    print(f"bench | {text}", file=sys.stderr, flush=True)
