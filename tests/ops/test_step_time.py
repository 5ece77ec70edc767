"""The step benchmark runs on any lean model and gives its table."""

from pathlib import Path

from ops.bench.path_times import Timing, path_table
from ops.bench.step_time import Sizes, measure
from worker.settings import WorkerSettings


def test_given_a_tiny_model_then_every_batch_is_timed_on_both_paths(tiny_model_folder: Path) -> None:
    timings = measure(str(tiny_model_folder), WorkerSettings(threads=1), Sizes(context=40, prefill=40, repetitions=1))
    assert [timing.name for timing in timings] == ["decode, 1", "decode, 8", "decode, 32", "prefill, 40 tokens"]
    assert [timing.num_tokens for timing in timings] == [1, 8, 32, 40]
    assert all(timing.lean_s > 0 and timing.generic_s > 0 for timing in timings)
    assert [timing.least_s is None for timing in timings] == [False, False, False, True]


def test_given_timings_then_the_table_sets_them_side_by_side() -> None:
    timings = [Timing("decode, 8", 8, 0.02, 0.1, 0.015), Timing("prefill, 512 tokens", 512, 1.0, 1.5, None)]
    assert path_table(timings).splitlines()[2:] == [
        "| decode, 8 | 20.0 | 100.0 | 5.0 | 400 | 75% |",
        "| prefill, 512 tokens | 1000.0 | 1500.0 | 1.5 | 512 |  |",
    ]
