"""The worker's metrics, from what an engine did to what Prometheus reads."""

from prometheus_client import generate_latest

from tests.worker.engine.doubles import long_prompt, make_engine, make_job, run
from worker.metrics import WorkerMetrics


def shown(metrics: WorkerMetrics, name: str) -> float:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"headrace_{name} "))


def test_prefix_cache_tokens_are_counted_as_asked_and_found_once_a_prompt() -> None:
    engine, _ = make_engine(page_size=4)
    metrics = WorkerMetrics()
    engine.add(make_job(long_prompt(10)))
    run(engine)
    metrics.observe(engine.stats())
    assert (shown(metrics, "prefix_cache_queries_total"), shown(metrics, "prefix_cache_hits_total")) == (10, 0)
    engine.add(make_job(long_prompt(10), long_prompt(7, start=30), job_fields={"n": 2}))
    run(engine)
    for _ in range(2):  # what was counted is not counted again
        metrics.observe(engine.stats())
        assert (shown(metrics, "prefix_cache_queries_total"), shown(metrics, "prefix_cache_hits_total")) == (27, 8)


def test_a_preempted_sequence_that_finds_its_own_pages_is_no_hit() -> None:
    engine, _ = make_engine(num_pages=8, page_size=2, max_context=16, end_token_ids=frozenset())
    metrics = WorkerMetrics()
    for start in (1, 20, 40):
        engine.add(make_job(long_prompt(3, start), max_tokens=9))
    run(engine)
    assert engine.stats().num_preemptions_total > 0
    metrics.observe(engine.stats())
    assert (shown(metrics, "prefix_cache_queries_total"), shown(metrics, "prefix_cache_hits_total")) == (9, 0)
