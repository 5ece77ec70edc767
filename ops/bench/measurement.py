"""From answers to figures: what one workload on one server came to, over all rounds."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from ops.bench.answer import Answer
from ops.bench.machine import DISTURBED_SHARE
from ops.bench.quantiles import quantile

MS = 1000.0


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One workload on one server in one round. `foreign_share` is that of the machine, 0 to 1."""

    model: str
    server: str
    workload: str
    concurrency: int
    wall_s: float
    answers: list[Answer]
    foreign_share: float
    pss_bytes: int = 0


@dataclass(frozen=True)
class Figures:
    """All rounds of one workload on one server together. Times in milliseconds.

    `itl`: between pieces of text; `tpot`: a request's time after its first token over the tokens that it had then.
    """

    model: str
    server: str
    workload: str
    concurrency: int
    num_ok: int
    num_failed: int
    output_tokens_per_s: float
    output_tokens: float  # of an answer, on average
    prompt_tokens: float
    cached_tokens: float
    is_counted: bool
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    tpot_p50: float
    pss_mib: float
    foreign_share: float  # of the worst round

    @property
    def is_disturbed(self) -> bool:
        return self.foreign_share > DISTURBED_SHARE


def figures(measurements: Iterable[Measurement]) -> list[Figures]:
    """One for each model, server and workload, in the order in which they came first."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for one in measurements:
        groups.setdefault((one.model, one.server, one.workload), []).append(one)
    return [_figures(group) for group in groups.values()]


def _figures(group: Sequence[Measurement]) -> Figures:
    answers = [answer for one in group for answer in one.answers]
    good = [answer for answer in answers if not answer.failure]
    ttft = [answer.text_times_s[0] * MS for answer in good]
    itl = [(b - a) * MS for answer in good for a, b in itertools.pairwise(answer.text_times_s)]
    num_tokens = sum(answer.num_output_tokens for answer in good)
    return Figures(
        model=group[0].model,
        server=group[0].server,
        workload=group[0].workload,
        concurrency=group[0].concurrency,
        num_ok=len(good),
        num_failed=len(answers) - len(good),
        output_tokens_per_s=num_tokens / sum(one.wall_s for one in group),
        output_tokens=num_tokens / max(1, len(good)),
        prompt_tokens=sum(answer.num_prompt_tokens for answer in good) / max(1, len(good)),
        cached_tokens=sum(answer.num_cached_tokens for answer in good) / max(1, len(good)),
        is_counted=all(answer.is_counted for answer in good),
        ttft_p50=quantile(ttft, 0.5),
        ttft_p99=quantile(ttft, 0.99),
        itl_p50=quantile(itl, 0.5),
        itl_p99=quantile(itl, 0.99),
        tpot_p50=quantile([_tpot_ms(answer) for answer in good if len(answer.text_times_s) > 1], 0.5),
        pss_mib=max(one.pss_bytes for one in group) / 2**20,
        foreign_share=max(one.foreign_share for one in group),
    )


def _tpot_ms(answer: Answer) -> float:
    return (answer.text_times_s[-1] - answer.text_times_s[0]) / (answer.num_output_tokens - 1) * MS


def most_memory_mib(rows: Iterable[Figures], server: str) -> float:
    """After any workload; NaN where none was measured."""
    return max((row.pss_mib for row in rows if row.server == server), default=math.nan)
