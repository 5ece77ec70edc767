"""Chooses the kernels for a device."""

import logging
from collections.abc import Iterable

import torch

from worker.engine.device import num_threads
from worker.kernels.cpu.attention import NativeAttention
from worker.kernels.cpu.build import CannotBuild, find_compiler
from worker.kernels.cpu.isa import Isa, available_isas
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.proof import Unproven, proven_library
from worker.kernels.interface import AttentionKernel
from worker.kernels.reference import ReferenceAttention

logger = logging.getLogger("headrace.engine")

AUTO, NONE = "auto", "none"


class UnknownKernels(ValueError):
    """No such kernels here; the message names those there are."""


def attention_kernel(device: torch.device, page_size: int, kernels: Kernels | None = None) -> AttentionKernel:
    """The kernel to use on `device`: that of our own kernels where there are any, else plain torch."""
    return ReferenceAttention(page_size, device) if kernels is None else NativeAttention(kernels, page_size)


def cpu_kernels(wanted: str, threads: int) -> Kernels | None:
    """Our own CPU kernels, or None where plain torch must do; says once which it is, and why none better.

    `wanted`: auto (the best instruction set that works on this processor), the name of one, or none. `threads`: 0 means
    one for each core. Raises UnknownKernels.
    """
    usable = {isa.name: isa for isa in available_isas()}
    if wanted not in {AUTO, NONE, *usable}:
        raise UnknownKernels(f"expected {', '.join([AUTO, *usable])} or {NONE}")
    if wanted == NONE:
        reason = "as asked"
    elif not usable:
        reason = "this processor has none of the instruction sets they are written for"
    else:
        kernels, reason = _first_that_works([usable[wanted]] if wanted in usable else usable.values(), threads)
        if kernels is not None:
            left_out = f" ({reason})" if reason else ""
            logger.info("CPU kernels: %s, %d threads%s", kernels.isa, kernels.num_threads, left_out)
            return kernels
    logger.info("CPU kernels: none, plain torch computes (%s)", reason)
    return None


def _first_that_works(isas: Iterable[Isa], threads: int) -> tuple[Kernels | None, str]:
    """The kernels of the first instruction set that can be used, and why those before cannot."""
    try:
        find_compiler()
    except CannotBuild as error:
        return None, str(error)
    failures: list[str] = []
    for isa in isas:
        try:
            return Kernels(proven_library(isa), isa.name, num_threads(threads)), "; ".join(failures)
        except (CannotBuild, Unproven, OSError) as error:
            failures.append(f"not {isa.name}: {error}")
    return None, "; ".join(failures)
