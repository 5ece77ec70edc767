"""The instruction sets that the kernels are compiled for, and which of them this processor has."""

import platform
from dataclasses import dataclass

from worker.engine.device import cpu_flags


@dataclass(frozen=True)
class Isa:
    name: str
    compiler_flags: tuple[str, ...]
    processor_flags: frozenset[str]  # as /proc/cpuinfo names them


ISAS = (  # the best first
    Isa(
        "avx512",
        ("-DHEADRACE_AVX512", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma"),
        frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ),
    Isa("avx2", ("-mavx2", "-mfma"), frozenset({"avx2", "fma"})),
)


def available_isas() -> tuple[Isa, ...]:
    """Those that this processor can run, the best first; none on other architectures."""
    if platform.machine() != "x86_64":
        return ()
    flags = cpu_flags()
    return tuple(isa for isa in ISAS if isa.processor_flags <= flags)
