"""The instruction sets that the kernels are compiled for, and which of them this processor has."""

import platform
from dataclasses import dataclass

from worker.engine.device import cpu_flags


@dataclass(frozen=True)
class Isa:
    name: str
    compiler_flags: tuple[str, ...]
    processor_flags: frozenset[str]  # as /proc/cpuinfo names them


# What `auto` takes first comes first. AVX-512 is compiled by the tests and waits, by name only, for a run of them on a
# processor that has it: what was never run must not be anyone's default.
ISAS = (
    Isa("avx2", ("-mavx2", "-mfma"), frozenset({"avx2", "fma"})),
    Isa(
        "avx512",
        ("-DHEADRACE_AVX512", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma"),
        frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
    ),
)


def available_isas() -> tuple[Isa, ...]:
    """Those that this processor can run, in the order of ISAS; none on other architectures."""
    if platform.machine() != "x86_64":
        return ()
    flags = cpu_flags()
    return tuple(isa for isa in ISAS if isa.processor_flags <= flags)
