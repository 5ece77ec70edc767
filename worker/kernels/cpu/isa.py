"""The instruction sets that the kernels are compiled for, and which of them this processor has."""

import platform
from dataclasses import dataclass

from worker.engine.device import cpu_flags


@dataclass(frozen=True)
class Isa:
    name: str
    compiler_flags: tuple[str, ...]
    processor_flags: frozenset[str]  # as /proc/cpuinfo names them


_AVX2 = Isa("avx2", ("-mavx2", "-mfma"), frozenset({"avx2", "fma"}))
_AVX512 = Isa(
    "avx512",
    (*_AVX2.compiler_flags, "-DHEADRACE_AVX512", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
    _AVX2.processor_flags | {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
)
_AVX512BF16 = Isa(
    "avx512bf16",
    (*_AVX512.compiler_flags, "-DHEADRACE_DOT", "-mavx512bf16", "-mavx512vnni"),
    _AVX512.processor_flags | {"avx512_bf16", "avx512_vnni"},
)
_AMX = Isa(
    "amx",
    (*_AVX512BF16.compiler_flags, "-DHEADRACE_AMX", "-mamx-tile", "-mamx-bf16"),
    _AVX512BF16.processor_flags | {"amx_tile", "amx_bf16"},
)

# The best first. `auto` takes the first whose library passes its self-test on this processor, so that one which has
# never run anywhere may stand here.
ISAS = (_AMX, _AVX512BF16, _AVX512, _AVX2)


def available_isas() -> tuple[Isa, ...]:
    """Those that this processor can run, in the order of ISAS; none on other architectures."""
    if platform.machine() != "x86_64":
        return ()
    flags = cpu_flags()
    return tuple(isa for isa in ISAS if isa.processor_flags <= flags)
