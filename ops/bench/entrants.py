"""Who takes part in a run: our own server in its variants, and the peers that are installed."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ops.bench import peers
from ops.bench.answer import Answer, read_answer
from ops.bench.batch_run import run_batch, underway
from ops.bench.bench_model import BenchModel
from ops.bench.engine_task import ENGINE, IN_TURNS, TURN_WORKLOADS, in_turns_with, measure_engine, new_task
from ops.bench.load_generator import drive
from ops.bench.machine import foreign_share, pss_bytes, usage
from ops.bench.measurement import Measurement
from ops.bench.options import Options
from ops.bench.own_server import HEADRACE, VARIANTS, Variant, launch_headrace, own_settings
from ops.bench.results import Results
from ops.bench.server import Launch, RunningServer
from ops.bench.workload import COMPARED, Workload, selected

Measure = Callable[[RunningServer, BenchModel, Workload], list[Measurement]]


@dataclass(frozen=True)
class Entrant:
    """A server in the run: what starts it for a model, the workloads it is given, and how each is measured."""

    name: str
    launch: Callable[[BenchModel, Path], Launch]
    workloads: list[Workload]
    measure: Measure


def entrants(options: Options, results: Results) -> Iterator[Entrant]:
    """Those that are asked for, have something to do and are installed."""

    def chosen(server: str, suitable: tuple[str, ...]) -> list[Workload]:
        names = [name for name in options.workloads if name in suitable and server in options.servers]
        return selected(names, is_quick=options.is_quick)

    for variant in VARIANTS.values():
        if workloads := chosen(variant.name, variant.workloads):
            yield _own(variant, workloads, options)
    if workloads := chosen(HEADRACE, TURN_WORKLOADS):
        yield replace(_own(VARIANTS[HEADRACE], workloads, options), name=IN_TURNS, measure=_in_turns(options))
    for peer in peers.PEERS.values():
        if workloads := chosen(peer.name, COMPARED if options.is_everything else peer.workloads):
            yield from _peer(peer, workloads, results)


def _own(variant: Variant, workloads: list[Workload], options: Options) -> Entrant:
    settings = {**options.settings, **variant.settings}
    return Entrant(
        variant.name, lambda model, data: launch_headrace(variant.name, model, data, settings), workloads, measure
    )


def _in_turns(options: Options) -> Measure:
    def measure_both(server: RunningServer, model: BenchModel, workload: Workload) -> list[Measurement]:
        names, folder = [workload.name], str(model.folder)
        task = new_task(ENGINE, model.name, folder, names, fresh_seed(), is_quick=options.is_quick)
        return measure_engine(in_turns_with(server, task), own_settings(model, options.settings)).measurements

    return measure_both


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
    yield Entrant(peer.name, lambda model, _: peer.launch(program, model, dtype), workloads, measure)


def measure(server: RunningServer, model: BenchModel, workload: Workload) -> list[Measurement]:
    """One workload on one running server. Raises BatchFailed."""
    lines = workload.lines(fresh_seed())
    requests = [server.request(question) for question in workload.questions(fresh_seed())]
    with underway(server.launch, lines) if lines and requests else nullcontext():
        before = usage(server.pid)
        answers, wall_s = (
            _answers(server, requests, workload.concurrency) if requests else run_batch(server.launch, lines)
        )
        share = foreign_share(before, usage(server.pid))
    one = Measurement(
        model=model.name,
        server=server.launch.name,
        workload=workload.name,
        concurrency=workload.concurrency,
        wall_s=wall_s,
        answers=answers,
        foreign_share=share,
        pss_bytes=pss_bytes(server.pid),
    )
    return [one]


def _answers(server: RunningServer, requests: list[bytes], concurrency: int) -> tuple[list[Answer], float]:
    exchanges, wall_s = drive(server.launch.port, requests, concurrency)
    return [read_answer(exchange) for exchange in exchanges], wall_s


def fresh_seed() -> int:
    """Another one at every call, in every run: no prefix cache has seen the prompts."""
    return time.time_ns()
