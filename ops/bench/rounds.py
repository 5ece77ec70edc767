"""The run: each server has its turn, then all of them again, so that a slow spell of the machine hits every one."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ops.batch_client import Refused
from ops.bench import peers
from ops.bench.batch_run import BatchFailed
from ops.bench.bench_model import BenchModel, prepare
from ops.bench.engine_task import ENGINE, ENGINE_INT8, ENGINE_WORKLOADS, measure_engine, new_task
from ops.bench.entrants import Entrant, entrants, fresh_seed
from ops.bench.machine import wait_until_quiet
from ops.bench.options import Options
from ops.bench.own_server import HEADRACE, INT8, own_settings
from ops.bench.path_times import measure_paths
from ops.bench.results import Results, Start
from ops.bench.roofline import measure_roofline
from ops.bench.server import ServerFailed, running

_ENGINE_OF = {HEADRACE: ENGINE, INT8: ENGINE_INT8}
PATHS = "lean and generic path"
_SETTLE_LIMIT_S = 20.0


def run(options: Options, keep: Callable[[Results], object]) -> Results:
    """Measure everything that `options` ask for. What cannot be measured is noted as absent with the reason.

    After each server's turn `keep` gets all results so far, so that an interrupted run is not lost.
    """
    _say("the machine's own limits")
    wait_until_quiet(0, options.quiet_limit_s)
    results = Results(roofline=measure_roofline())
    in_order = list(entrants(options, results))
    for name in options.models:
        model = prepare(name, options.out / "models")
        results.models[model.name] = model
        for number in range(options.num_rounds):
            for turn in _turns(options, results, model, in_order, number):
                turn()
                keep(results)
    return results


def _turns(
    options: Options, results: Results, model: BenchModel, in_order: list[Entrant], number: int
) -> Iterator[Callable[[], None]]:
    """One round: each server, and what is measured in process."""
    if number > 0:
        yield lambda: _roofline_turn(options, results)
    for entrant in in_order:
        yield partial(_turn, options, results, model, entrant, number)
    for server, engine in _ENGINE_OF.items():
        if server in options.servers:
            yield partial(_engine_turn, options, results, model, engine, number)
    if HEADRACE in options.servers and number == 0:
        yield lambda: _paths_turn(options, results, model)


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
        results.starts.append(Start(model.name, server.launch.name, server.first_token_s))
        wait_until_quiet(0, _SETTLE_LIMIT_S)  # what it still does although it answers already
        for workload in entrant.workloads:
            if _is_due(options, results, (model.name, entrant.name, workload.name)):
                wait_until_quiet(server.pid, options.quiet_limit_s)
                try:
                    results.measurements += entrant.measure(server, model, workload)
                except (BatchFailed, Refused, subprocess.CalledProcessError) as reason:
                    results.absent[f"{entrant.name}, {model.name}, {workload.name}"] = str(reason)


def _is_due(options: Options, results: Results, key: tuple[str, str, str]) -> bool:
    """What has taken long has met fast and slow spells of the machine alike, and is not measured again."""
    return all(
        one.wall_s <= options.repeat_limit_s
        for one in results.measurements
        if (one.model, one.server, one.workload) == key
    )


def _engine_turn(options: Options, results: Results, model: BenchModel, engine: str, number: int) -> None:
    _say(f"round {number + 1}: {engine}, {model.name}")
    names = [
        name
        for name in ENGINE_WORKLOADS
        if engine == ENGINE and name in options.workloads and _is_due(options, results, (model.name, engine, name))
    ]
    task = new_task(engine, model.name, str(model.folder), names, fresh_seed(), is_quick=options.is_quick)
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


def _say(text: str) -> None:
    print(f"bench | {text}", file=sys.stderr, flush=True)
