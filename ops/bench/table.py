"""The results as Markdown tables."""

import math
from collections.abc import Iterable, Sequence

from ops.bench.admission import AdmissionResult
from ops.bench.bench_model import BenchModel
from ops.bench.engine_task import ENGINE, IN_TURNS, Step
from ops.bench.machine import DISTURBED_SHARE
from ops.bench.measured import best_steps
from ops.bench.measurement import Figures, figures, most_memory_mib
from ops.bench.own_server import HEADRACE, INT8, POLICY_WORKLOAD, STATIC
from ops.bench.path_times import path_table
from ops.bench.peers import LLAMA_SERVER, LLAMA_SERVER_Q8, TRANSFORMERS, VLLM
from ops.bench.results import Results
from ops.bench.roofline import Roofline
from ops.bench.targets import Verdict, verdicts

Cells = Sequence[object]
_NONE = "–"
_COMPARED = (
    *((HEADRACE, peer) for peer in (VLLM, LLAMA_SERVER, TRANSFORMERS)),
    *((INT8, other) for other in (LLAMA_SERVER_Q8, HEADRACE)),
)


def markdown(results: Results) -> str:
    """Everything: the machine, each model's results, ratios, targets, and what could not be measured."""
    rows = figures(results.measurements)
    parts = [_head(results)]
    for model in results.models.values():
        own = [row for row in rows if row.model == model.name]
        steps = [step for step in results.steps if step.model == model.name]
        timings = results.timings.get(model.name, [])
        parts += [
            f"## {model.name}",
            _main_table(own, model, results.roofline),
            target_table(verdicts(results, model.name)),
            _ratios(own),
            _policies(own),
            _overhead(own),
            _steps(steps, model, results.roofline),
            path_table(timings) if timings else "",
            _starts(results, own, model),
        ]
    parts += [_admission(results.admission) if results.admission else "", _absences(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: Cells, rows: Iterable[Cells]) -> str:
    """A Markdown table, or nothing where there are no rows."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(map(str, head)) + " |", "|" + "---|" * len(head), *lines]) if lines else ""


def number(value: float, digits: int = 0) -> str:
    return _NONE if math.isnan(value) or math.isinf(value) else f"{value:.{digits}f}"


def percent(share: float) -> str:
    return _NONE if math.isnan(share) or math.isinf(share) else f"{100 * share:.0f} %"


def decode_share(row: Figures, model: BenchModel, roofline: Roofline) -> float:
    """The time a token takes at best, over the time it took after each request's first."""
    context = row.prompt_tokens + row.output_tokens / 2
    return roofline.step_s(model, row.concurrency, context) * 1000 / row.tpot_p50


def run_share(row: Figures, model: BenchModel, roofline: Roofline) -> float:
    """The same of the whole run, prompts included, as tokens a second."""
    context = row.prompt_tokens + row.output_tokens / 2
    decode_s = row.output_tokens * roofline.step_s(model, row.concurrency, context) / row.concurrency
    best_s = decode_s + roofline.prefill_s(model, row.prompt_tokens - row.cached_tokens)
    return row.output_tokens_per_s * best_s / row.output_tokens if row.output_tokens else math.nan


def target_table(rows: Iterable[Verdict]) -> str:
    return table(
        ("target", "bound", "measured", "met"),
        ((row.what, row.bound_text, row.measured_text, {True: "yes", False: "**no**", None: _NONE}[row.is_met])
         for row in rows),
    )  # fmt: skip


def limits(results: Results) -> str:
    """The machine's own rates, and what was compared."""
    line = results.roofline
    return (
        f"Measured limits: reads {line.read_bytes_per_s / 1e9:.1f} GB/s ({line.read_1_bytes_per_s / 1e9:.1f} with one "
        f"thread), multiplies at {line.flop_per_s / 1e9:.0f} GFLOP/s in {_dtype(line)}.\n"
        f"{'Compared: ' + ', '.join(results.versions) + '.' if results.versions else ''}"
    ).rstrip()


def _head(results: Results) -> str:
    return (
        f"# Benchmark, {results.date}\n\n{results.machine}. It took {results.took_s / 60:.0f} minutes. "
        f"Again with: `{results.command}`\n\n{limits(results)}"
    )


def _dtype(line: Roofline) -> str:
    return "bf16" if line.has_fast_bf16 else "float32"


def _main_table(rows: Sequence[Figures], model: BenchModel, roofline: Roofline) -> str:
    head = (
        "server", "workload", "ok/failed", "tokens out", "output tok/s", "TTFT p50 / p99 ms", "ITL p50 / p99 ms",
        "decode / roofline", "run / roofline", "PSS MiB", "foreign CPU",
    )  # fmt: skip
    notes = (
        "TTFT: from sending to the first text. ITL: between pieces of text. Roofline: weights as stored and KV in "
        "bf16, read once a step, or the multiplications, whichever takes longer. Foreign CPU: the share of the machine "
        f"that other programs took; *rows above {percent(DISTURBED_SHARE)} are disturbed*."
    )
    if not all(row.is_counted for row in rows):
        notes += " ≥: this server does not say how many tokens it made, so pieces of text are counted."
    return table(head, (_main_row(row, model, roofline) for row in rows)) + "\n\n" + notes if rows else ""


def _main_row(row: Figures, model: BenchModel, roofline: Roofline) -> Cells:
    foreign = percent(row.foreign_share)
    return (
        row.server,
        row.workload,
        f"{row.num_ok}/{row.num_failed}",
        ("" if row.is_counted else "≥ ") + number(row.output_tokens, 1),
        f"**{number(row.output_tokens_per_s, 1)}**",
        f"{number(row.ttft_p50)} / {number(row.ttft_p99)}",
        f"{number(row.itl_p50, 1)} / {number(row.itl_p99, 1)}",
        percent(decode_share(row, model, roofline)),
        percent(run_share(row, model, roofline)),
        number(row.pss_mib) if row.pss_mib else _NONE,
        f"*{foreign}, disturbed*" if row.is_disturbed else foreign,
    )


def _ratios(rows: Sequence[Figures]) -> str:
    by_place = {(row.server, row.workload): row for row in rows}
    lines = [
        (
            f"{one} / {other}",
            row.workload,
            number(row.output_tokens_per_s / base.output_tokens_per_s, 2),
            number(row.ttft_p50 / base.ttft_p50, 2),
        )
        for one, other in _COMPARED
        for row in rows
        if row.server == one and (base := by_place.get((other, row.workload))) and base.num_ok > 0
    ]
    return table(("ratio", "workload", "output tok/s", "TTFT p50"), lines)


def _policies(rows: Sequence[Figures]) -> str:
    both = {row.server: row for row in rows if row.workload == POLICY_WORKLOAD}
    if not {HEADRACE, STATIC} <= both.keys():
        return ""
    lines = [
        (policy, number(row.output_tokens_per_s, 1), number(row.ttft_p50), number(row.ttft_p99))
        for policy, row in (("continuous", both[HEADRACE]), ("static", both[STATIC]))
    ]
    return table(("policy, mixed lengths", "output tok/s", "TTFT p50 ms", "TTFT p99 ms"), lines)


def _overhead(rows: Sequence[Figures]) -> str:
    inner = {row.workload: row for row in rows if row.server == ENGINE}
    outer = {row.workload: row for server in (HEADRACE, IN_TURNS) for row in rows if row.server == server}
    lines = [
        (
            row.workload,
            number(row.output_tokens_per_s, 1),
            number(alone.output_tokens_per_s, 1),
            percent(row.output_tokens_per_s / alone.output_tokens_per_s),
            number(row.ttft_p50 - alone.ttft_p50, 1),
        )
        for row in outer.values()
        if (alone := inner.get(row.workload))
    ]
    return table(("serving", "tok/s over HTTP", "tok/s in process", "of it", "TTFT p50 more, ms"), lines)


def _steps(steps: Sequence[Step], model: BenchModel, roofline: Roofline) -> str:
    return table(
        ("decode step in process", "context", "ms", "roofline ms", "of it", "outside the forward pass, ms", "share"),
        (_step_row(step, model, roofline) for step in best_steps(steps)),
    )


def _step_row(step: Step, model: BenchModel, roofline: Roofline) -> Cells:
    is_plain = step.engine == ENGINE  # the roofline is that of the weights as stored
    at_best_s = roofline.step_s(model, step.batch, step.context) if is_plain else math.nan
    return (
        f"{step.engine}, batch {step.batch}",
        number(step.context),
        number(step.step_s * 1000, 1),
        number(at_best_s * 1000, 1),
        percent(at_best_s / step.step_s),
        number(step.bookkeeping_s * 1000, 2),
        percent(step.bookkeeping_s / step.step_s),
    )


def _starts(results: Results, rows: Sequence[Figures], model: BenchModel) -> str:
    starts: dict[str, list[float]] = {}
    for start in results.starts:
        if start.model == model.name:
            starts.setdefault(start.server, []).append(start.first_token_s)
    lines = [
        (server, " / ".join(number(start_s, 1) for start_s in starts_s), number(most_memory_mib(rows, server)))
        for server, starts_s in starts.items()
    ]
    return table(("server", "start to first token, s (each start)", "most memory (PSS), MiB"), lines)


def _admission(result: AdmissionResult) -> str:
    return table(
        (f"full queue: {result.num_admitted + result.num_refused} requests, room for {result.num_admitted}", "ms"),
        (
            ("refused with 429, p50", number(result.refusal_p50_ms)),
            ("refused with 429, p99", number(result.refusal_p99_ms)),
            ("slowest /livez meanwhile", number(result.probe_max_ms)),
        ),
    )


def _absences(results: Results) -> str:
    return "\n".join(f"- Absent: {name}: {reason}" for name, reason in results.absent.items())
