"""What a stream gathers of its pace is told in full, and like single observations."""

from prometheus_client import Histogram

from api.metrics import ApiMetrics
from api.relay.pace import Pace, _observe_all


def samples(histogram: Histogram) -> list[tuple[str, dict[str, str], float]]:
    return [
        (s.name, s.labels, s.value)
        for metric in histogram.collect()
        for s in metric.samples
        if "_created" not in s.name
    ]


def test_values_told_at_once_count_like_single_ones() -> None:
    at_once, single = ApiMetrics().inter_token_latency, ApiMetrics().inter_token_latency
    values = [0.0, 0.002, 0.0021, 0.64, 0.65, 2.56, 99.0, 0.65]
    _observe_all(at_once, values)
    for value in values:
        single.observe(value)
    assert samples(at_once) == samples(single)


def test_the_first_token_and_every_later_one_are_counted() -> None:
    metrics = ApiMetrics()
    pace = Pace(metrics, opened_s=0.0)
    for num_deltas in (0, 2, 1, 0, 3):
        pace.note(num_deltas)
    pace.tell()
    pace.tell()
    counts = {
        name: value for name, _, value in samples(metrics.time_to_first_token) + samples(metrics.inter_token_latency)
    }
    assert counts["headrace_time_to_first_token_seconds_count"] == 1
    assert counts["headrace_inter_token_latency_seconds_count"] == 5
