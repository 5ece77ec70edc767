"""From measurements to figures, tables and the picture."""

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ops.bench.answer import Answer
from ops.bench.bench_model import BenchModel
from ops.bench.engine_task import ENGINE, ENGINE_INT8, IN_TURNS, Step
from ops.bench.measurement import Figures, Measurement, figures
from ops.bench.own_server import HEADRACE, STATIC
from ops.bench.peers import VLLM
from ops.bench.picture import OWN_COLOUR, svg
from ops.bench.results import Results, Start
from ops.bench.roofline import Roofline
from ops.bench.table import decode_share, markdown, run_share, table

# A step reads 2 GB of weights and 1 MB of KV a token at 10 GB/s; a billion parameters at 1 TFLOP/s take 2 ms a token.
MODEL = BenchModel(Path("/models/m"), num_parameters=10**9, weight_bytes=2 * 10**9, kv_bytes=10**6)
ROOFLINE = Roofline(6e9, 10e9, 1e12, False)


def answer(*times_s: float, tokens: int) -> Answer:
    return Answer(text_times_s=list(times_s), num_output_tokens=tokens, num_prompt_tokens=100, is_counted=True)


def measurement(server: str, *answers: Answer, workload: str = "c1", foreign: float = 0.0) -> Measurement:
    return Measurement(
        model="m",
        server=server,
        workload=workload,
        concurrency=2,
        wall_s=2.0,
        answers=list(answers),
        foreign_share=foreign,
        pss_bytes=3 * 2**20,
    )


def results(*measurements: Measurement) -> Results:
    return Results(
        machine="2 cores",
        date="2026-01-31",
        command="make bench",
        took_s=600.0,
        roofline=ROOFLINE,
        models={MODEL.name: MODEL},
        measurements=list(measurements),
    )


def step(engine: str, batch: int, step_s: float) -> Step:
    return Step(model=MODEL.name, engine=engine, batch=batch, context=1000, step_s=step_s, bookkeeping_s=0.003)


def test_rounds_of_one_workload_are_taken_together() -> None:
    first = measurement(HEADRACE, answer(0.1, 0.2, 0.4, tokens=3), foreign=0.01)
    second = measurement(HEADRACE, answer(0.3, 0.4, 0.6, tokens=5), Answer(failure="gone"), foreign=0.06)

    (row,) = figures([first, second])

    assert (row.num_ok, row.num_failed, row.output_tokens, row.prompt_tokens) == (2, 1, 4.0, 100.0)
    assert row.output_tokens_per_s == 8 / 4.0
    assert row.ttft_p50 == pytest.approx(200)
    assert row.ttft_p99 == pytest.approx(298)
    assert row.itl_p50 == pytest.approx(150)
    assert row.tpot_p50 == pytest.approx((150 + 75) / 2)
    assert (row.pss_mib, row.foreign_share, row.is_disturbed) == (3.0, 0.06, True)


def test_given_no_answer_at_all_then_there_is_a_row_without_times() -> None:
    (row,) = figures([measurement(HEADRACE, Answer(failure="gone"))])

    assert (row.num_ok, row.num_failed, row.output_tokens_per_s) == (0, 1, 0.0)
    assert math.isnan(row.ttft_p50)
    assert "| headrace | c1 | 0/1 | 0.0 | **0.0** | – / – | – / – | – | – | 3 | 0 % |" in markdown(
        results(measurement(HEADRACE, Answer(failure="gone")))
    )


def test_the_roofline_is_the_slower_of_reading_and_multiplying() -> None:
    assert ROOFLINE.step_s(MODEL, batch=1, context=1000) == pytest.approx(0.3)  # 2 GB + 1 GB at 10 GB/s
    assert ROOFLINE.step_s(MODEL, batch=200, context=1) == pytest.approx(0.4)  # 200 x 2 GFLOP at 1 TFLOP/s
    assert ROOFLINE.prefill_s(MODEL, 500) == pytest.approx(1.0)


def test_the_best_of_two_rooflines_has_the_higher_of_each_rate() -> None:
    assert ROOFLINE.best_of(Roofline(7e9, 9e9, 2e12, False)) == Roofline(7e9, 10e9, 2e12, False)


def test_shares_of_the_roofline_are_its_time_over_the_time_taken() -> None:
    # 11 tokens each after prompts of 100, two at a time: a step reads 2 GB and 2 x 105.5 MB, 0.2211 s.
    (row,) = figures([measurement(HEADRACE, *[answer(1.0, 6.0, tokens=11)] * 2)])

    assert decode_share(row, MODEL, ROOFLINE) == pytest.approx(0.2211 / 0.5)
    # Two answers take 11 steps and the time of 200 prompt tokens, 0.4 s, at best; the wall time was 2 s.
    assert run_share(row, MODEL, ROOFLINE) == pytest.approx((11 * 0.2211 + 0.4) / 2.0)


def test_the_tables_tell_rows_ratios_policies_and_overhead() -> None:
    fast, slow = answer(0.1, 0.2, tokens=40), answer(0.4, 0.6, tokens=20)
    text = markdown(
        results(
            measurement(HEADRACE, fast),
            measurement(HEADRACE, fast, workload="mixed"),
            measurement(STATIC, slow, workload="mixed"),
            measurement(VLLM, slow, foreign=0.09),
            measurement(ENGINE, answer(0.09, 0.2, tokens=50)),
            measurement(ENGINE, answer(0.09, 0.2, tokens=50), workload="brief"),
            measurement(HEADRACE, slow, workload="brief"),
            measurement(IN_TURNS, fast, workload="brief"),
        )
    )

    assert "2 cores. It took 10 minutes. Again with: `make bench`" in text
    assert "reads 10.0 GB/s (6.0 with one thread), multiplies at 1000 GFLOP/s in float32" in text
    assert "| vllm-cpu | c1 | 1/0 | 20.0 | **10.0** | 400 / 400 |" in text
    assert "| 3 | *9 %, disturbed* |" in text
    assert "| headrace / vllm-cpu | c1 | 2.00 | 0.25 |" in text
    assert "| continuous | 20.0 | 100 | 100 |" in text
    assert "| static | 10.0 | 400 | 400 |" in text
    assert "| c1 | 20.0 | 25.0 | 80 % | 10.0 |" in text
    assert "| brief | 20.0 | 25.0 | 80 % | 10.0 |" in text, "measured in turns with the engine"


def test_steps_starts_and_absences_are_told() -> None:
    given = results(measurement(HEADRACE, answer(0.1, 0.2, tokens=2)))
    given.steps = [step(ENGINE, 1, 0.8), step(ENGINE, 1, 0.6), step(ENGINE_INT8, 1, 0.4)]
    given.starts = [Start("m", HEADRACE, 12.34), Start("m", HEADRACE, 5.0)]
    given.absent["vllm-cpu"] = "no vllm on the path"
    text = markdown(given)

    assert "| engine in process, batch 1 | 1000 | 600.0 | 300.0 | 50 % | 3.00 | 0 % |" in text
    assert "| engine int8, batch 1 | 1000 | 400.0 | – | – | 3.00 | 1 % |" in text
    assert "| headrace | 12.3 / 5.0 | 3 |" in text
    assert text.endswith("- Absent: vllm-cpu: no vllm on the path\n")


def test_given_pieces_of_text_were_counted_then_the_table_says_at_least() -> None:
    uncounted = Answer(text_times_s=[0.1, 0.2], num_output_tokens=2)
    text = markdown(results(measurement(VLLM, uncounted)))

    assert "| vllm-cpu | c1 | 1/0 | ≥ 2.0 |" in text
    assert "≥: this server does not say how many tokens it made" in text


def test_a_table_without_rows_is_nothing() -> None:
    assert table(("a", "b"), []) == ""
    assert table(("a", "b"), [(1, 2)]) == "| a | b |\n|---|---|\n| 1 | 2 |"


def test_the_picture_has_a_bar_for_each_figure_and_ours_in_colour() -> None:
    rows: list[Figures] = figures(
        [
            measurement(HEADRACE, answer(0.1, 0.2, tokens=40)),
            measurement("a <peer> & co", answer(0.4, 0.6, tokens=20)),
            measurement("silent", Answer(failure="gone")),
        ]
    )
    root = ElementTree.fromstring(svg(rows, HEADRACE, "a machine"))
    bars = [element for element in root if element.tag.endswith("rect") and "rx" in element.attrib]
    texts = [element.text for element in root if element.tag.endswith("text")]

    assert [bar.attrib["fill"] == OWN_COLOUR for bar in bars].count(True) == 3
    assert len(bars) == 7  # three each, and the silent one's rate of zero
    assert "a <peer> & co" in texts
    assert {"20", "10", "100", "400", "a machine", "m", "c1"} <= set(texts)
