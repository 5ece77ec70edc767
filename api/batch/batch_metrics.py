"""What /metrics tells of batches, as Redis has it when it is asked."""

from collections import Counter
from collections.abc import Iterator

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.batch.records import ENDED
from api.batch.store import BatchStore

_LINES = "lines:"


class BatchCollector(Collector):
    """Left out while the broker is away, as the queue's figures are."""

    def __init__(self, store: BatchStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        try:
            totals, active = self._store.totals(), self._store.load_all(self._store.active())
            num_open = self._store.num_open([batch.id for batch in active])
        except redis.RedisError:
            return
        lines = CounterMetricFamily(
            "headrace_batch_lines_ended", "Lines of batches that have their row, by file", labels=["state"]
        )
        ended = CounterMetricFamily("headrace_batches_ended", "Batches that have ended, by state", labels=["status"])
        for state in ("completed", "failed"):
            lines.add_metric([state], totals.get(_LINES + state, 0))
        for status in ENDED:
            ended.add_metric([status], totals.get(status, 0))
        yield from (lines, ended)
        waiting = GaugeMetricFamily(
            "headrace_batch_lines", "Lines of batches that have no row yet, by state", labels=["state"]
        )
        waiting.add_metric(["waiting"], sum(batch.num_planned - batch.cursor for batch in active))
        waiting.add_metric(["submitted"], num_open)
        yield waiting
        batches = GaugeMetricFamily("headrace_batches", "Batches that have not ended, by state", labels=["status"])
        for status, num in sorted(Counter(batch.status for batch in active).items()):
            batches.add_metric([status], num)
        yield batches
        oldest_s = max((batch.now_ms / 1000 - batch.created_at for batch in active), default=0.0)
        yield GaugeMetricFamily("headrace_batch_oldest_age_seconds", "Age of the oldest unfinished batch", oldest_s)
