"""The API's Prometheus metrics: counted in each process, summed over all of them when scraped.

gunicorn.conf.py sets PROMETHEUS_MULTIPROC_DIR before this module is imported; without it (in tests of single parts)
the metrics are those of this process.
"""

import os
from collections.abc import Iterator

import redis
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from worker.protocol.job import JobClass
from worker.protocol.queue import JobQueue

_TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_ITL_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56)


class ApiMetrics:
    """Names follow vLLM's where it has the same quantity."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "headrace_"
        self.time_to_first_token = Histogram(
            name + "time_to_first_token_seconds", "From the request to its first token", buckets=_TTFT_BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self.inter_token_latency = Histogram(
            name + "inter_token_latency_seconds", "Between two steps of one stream", buckets=_ITL_BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self.admitted = self._counter("requests_admitted", "Requests admitted to the queue", "endpoint")
        self.refused = self._counter("requests_refused", "Requests refused, by error code", "reason")
        self.ended = self._counter("requests_ended", "Requests relayed to their end, by state", "state")
        self.cancelled = self._counter("requests_cancelled", "Jobs cancelled by this API, by cause", "cause")
        self.moved = self._counter("queue_moves", "Jobs moved by the queue's clock: requeued, failed ...", "rule")
        self.websockets = Gauge(
            name + "websockets_open", "WebSockets held now", registry=self.registry, multiprocess_mode="livesum"
        )
        self.tokens = self._counter("relayed_tokens", "Tokens of ended requests, by kind", "kind")

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter("headrace_" + name, text, [label], registry=self.registry)

    def count_moves(self, moved: dict[str, int]) -> None:
        for rule, num in moved.items():
            if num:
                self.moved.labels(rule).inc(num)

    def render(self, queue: JobQueue, *others: Collector) -> bytes:
        """The text exposition: every process's counters, and the queue and the `others` as Redis has them now."""
        registry = CollectorRegistry()
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        else:
            registry.register(_Existing(self.registry))
        for collector in (_QueueCollector(queue), *others):
            registry.register(collector)
        return generate_latest(registry)


class _Existing(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        yield from self._registry.collect()


class _QueueCollector(Collector):
    """Left out while the broker is away: an old figure would look like a live one."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue = queue

    def collect(self) -> Iterator[Metric]:
        try:
            snapshot = self._queue.snapshot()
        except redis.RedisError:
            return
        depth = GaugeMetricFamily("headrace_queue_depth", "Jobs waiting", labels=["class"])
        tokens = GaugeMetricFamily("headrace_queue_tokens", "Tokens of the waiting jobs", labels=["class"])
        for job_class in JobClass:
            depth.add_metric([job_class.name.lower()], snapshot.depth[job_class])
            tokens.add_metric([job_class.name.lower()], snapshot.tokens[job_class])
        yield from (depth, tokens)
        yield GaugeMetricFamily("headrace_jobs_running", "Jobs owned by workers", snapshot.num_running)
        yield GaugeMetricFamily(
            "headrace_queue_drain_rate", "Tokens a second leaving a busy queue", snapshot.drain_rate
        )
        yield GaugeMetricFamily("headrace_workers", "Workers with a live lease", len(snapshot.workers))
