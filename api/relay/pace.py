"""How fast a stream's tokens come, for the metrics."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from prometheus_client import Histogram

from api.metrics import ApiMetrics

_TELL_EVERY_S = 5.0


class Pace:
    """Gathers what one stream sees and tells the metrics now and then: they lie in a file that processes share, and
    writing there at every token would cost more than making its chunk."""

    def __init__(self, metrics: ApiMetrics, opened_s: float) -> None:
        """`opened_s`: when the request came (`time.monotonic`)."""
        self._metrics = metrics
        self._told_s = self._last_s = opened_s
        self._has_begun = False
        self._gaps_s: list[float] = []

    def note(self, num_deltas: int) -> None:
        """So many came just now, at once."""
        if num_deltas == 0:
            return
        now_s = time.monotonic()
        gaps_s = [now_s - self._last_s] + [0.0] * (num_deltas - 1)
        if not self._has_begun:
            self._has_begun = True
            self._metrics.time_to_first_token.observe(gaps_s.pop(0))
        self._gaps_s += gaps_s
        self._last_s = now_s
        if now_s - self._told_s >= _TELL_EVERY_S:
            self.tell()

    def tell(self) -> None:
        """Must be called at the end too."""
        if self._gaps_s:
            _observe_all(self._metrics.inter_token_latency, self._gaps_s)
        self._gaps_s, self._told_s = [], self._last_s


def _observe_all(histogram: Histogram, values: Sequence[float]) -> None:
    """A bucket is written once, however many values fall into it. There is no public way to do so."""
    histogram._sum.inc(sum(values))
    for bucket, num in Counter(bisect_left(histogram._upper_bounds, value) for value in values).items():
        histogram._buckets[bucket].inc(num)
