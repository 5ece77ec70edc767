"""One model's figures out of a run, by name."""

import math
from collections.abc import Callable, Iterable

from ops.bench.engine_task import ENGINE, Step
from ops.bench.measurement import MS, Figures, figures, most_memory_mib
from ops.bench.path_times import decode_name
from ops.bench.peers import PEERS
from ops.bench.results import Results


class Measured:
    """What is missing is NaN, and so is all that comes of it."""

    def __init__(self, results: Results, model: str) -> None:
        self._results = results
        self._model = model
        self._rows = [row for row in figures(results.measurements) if row.model == model]
        self._by_place = {(row.server, row.workload): row for row in self._rows}
        steps = best_steps(step for step in results.steps if step.model == model)
        self._steps = {(step.engine, step.batch): step for step in steps}
        self._timings = {timing.name: timing for timing in results.timings.get(model, ())}

    def rate(self, server: str, workload: str) -> float:
        return self._figure(server, workload, lambda row: row.output_tokens_per_s if row.num_ok else math.nan)

    def ttft(self, server: str, workload: str) -> float:
        return self._figure(server, workload, lambda row: row.ttft_p50)

    def itl(self, server: str, workload: str) -> float:
        return self._figure(server, workload, lambda row: row.itl_p50)

    def best_peers_ttft(self, workload: str) -> float:
        times = (self.ttft(peer, workload) for peer in PEERS)
        return min((time for time in times if not math.isnan(time)), default=math.nan)

    def memory_ratio(self, server: str, peer: str) -> float:
        """After the workloads that both were given: what was read and written fills the pages of a KV cache."""
        common = {row.workload for row in self._rows if row.server == peer}
        rows = [row for row in self._rows if row.workload in common]
        return most_memory_mib(rows, server) / most_memory_mib(rows, peer)

    def later_start(self, server: str) -> float:
        """The quickest start after the first one, which may compile and has nothing in memory yet."""
        times = [one.first_token_s for one in self._results.starts if (one.model, one.server) == (self._model, server)]
        return min(times[1:], default=math.nan)

    def step_s(self, engine: str, batch: int) -> float:
        step = self._steps.get((engine, batch))
        return step.step_s if step else math.nan

    def bookkeeping_ms(self, batch: int) -> float:
        step = self._steps.get((ENGINE, batch))
        return step.bookkeeping_s * MS if step else math.nan

    def of_roofline(self, batch: int) -> float:
        step = self._steps.get((ENGINE, batch))
        if step is None:
            return math.nan
        return self._results.roofline.step_s(self._results.models[self._model], batch, step.context) / step.step_s

    def generic_ratio(self, batch: int) -> float:
        timing = self._timings.get(decode_name(batch))
        return timing.ratio if timing else math.nan

    def _figure(self, server: str, workload: str, of: Callable[[Figures], float]) -> float:
        row = self._by_place.get((server, workload))
        return of(row) if row else math.nan


def best_steps(steps: Iterable[Step]) -> list[Step]:
    """The fastest round of each engine and batch size, in the order in which they came first."""
    groups: dict[tuple[str, int], list[Step]] = {}
    for step in steps:
        groups.setdefault((step.engine, step.batch), []).append(step)
    return [min(group, key=lambda step: step.step_s) for group in groups.values()]
