"""Instruction sets that this processor may lack, emulated: the same sources, but for each instruction a function."""

import hashlib
from pathlib import Path

from worker.kernels.cpu.isa import ISAS, Isa, available_isas

FOLDER = Path(__file__).parent / "emulation"
# Without those that only widen what the others hold: everything in the plain avx512 library is in avx512bf16 too.
EMULATED_NAMES = ("avx512bf16", "amx")


def _emulated(isa: Isa) -> Isa:
    """`isa` on AVX2."""
    flags = [flag for flag in isa.compiler_flags if not flag.startswith(("-mavx512", "-mamx"))]
    headers = b"".join(path.read_bytes() for path in sorted(FOLDER.iterdir()))
    version = f"-DHEADRACE_EMULATED=0x{hashlib.sha256(headers).hexdigest()[:8]}"  # another library when they change
    return Isa(f"{isa.name}-emulated", (*flags, "-O1", version, "-include", str(FOLDER / "bf16.h")), frozenset())


def emulated_isas() -> tuple[Isa, ...]:
    """Named NAME-emulated; none where there is no AVX2 to emulate them with."""
    has_avx2 = any(isa.name == "avx2" for isa in available_isas())
    return tuple(_emulated(isa) for isa in ISAS if has_avx2 and isa.name in EMULATED_NAMES)


def rounds_rows(isa: str) -> bool:
    """Whether `isa` rounds what it multiplies with bf16 weights to bf16."""
    return isa.removesuffix("-emulated") in EMULATED_NAMES
