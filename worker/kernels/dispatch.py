"""Chooses the kernels for a device."""

import logging

import torch

from worker.engine.device import num_threads
from worker.kernels.cpu.attention import NativeAttention
from worker.kernels.cpu.build import CannotBuild, library_file
from worker.kernels.cpu.isa import available_isas
from worker.kernels.cpu.library import Kernels
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
    """Our own CPU kernels, or None where plain torch must do; says once which it is.

    `wanted`: auto (the best instruction set this processor has), the name of one, or none. `threads`: 0 means one for
    each core. Raises UnknownKernels.
    """
    usable = {isa.name: isa for isa in available_isas()}
    if wanted not in {AUTO, NONE, *usable}:
        raise UnknownKernels(f"expected {', '.join([AUTO, *usable])} or {NONE}")
    if wanted == NONE:
        reason = "as asked"
    elif not usable:
        reason = "this processor has none of the instruction sets they are written for"
    else:
        isa = usable.get(wanted) or next(iter(usable.values()))
        try:
            kernels = Kernels(library_file(isa), isa.name, num_threads(threads))
        except (CannotBuild, OSError) as error:
            reason = str(error)
        else:
            logger.info("CPU kernels: %s, %d threads", isa.name, kernels.num_threads)
            return kernels
    logger.info("CPU kernels: none, plain torch computes (%s)", reason)
    return None
