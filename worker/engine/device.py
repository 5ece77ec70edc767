"""Where and in which precision to compute."""

import os
from pathlib import Path

import torch

from worker.protocol.configuration import BadSetting

GIB = 1024**3
CPU_POOL_BYTES = 2 * GIB
DEVICE_POOL_SHARE = 0.8  # of the memory left after the weights; activations need some of the rest
FAST_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})  # without them torch emulates bfloat16 slower than float32
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_device(name: str) -> torch.device:
    """Raises BadSetting when torch does not know the device or cannot use it here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadSetting(f"HEADRACE_DEVICE={name!r}: {str(error).splitlines()[0]}") from error
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Raises BadSetting for anything but auto, float32 and bfloat16."""
    if name == "auto":
        is_fast = device.type == "cuda" or (device.type == "cpu" and bool(cpu_flags() & FAST_BF16_FLAGS))
        return torch.bfloat16 if is_fast else torch.float32
    if name not in DTYPES:
        raise BadSetting(f"HEADRACE_DTYPE={name!r}: expected auto, float32 or bfloat16")
    return DTYPES[name]


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction set flags of the processor; none where the system does not tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def num_threads(count: int) -> int:
    """Compute threads of this process; 0 means one for each core it may run on."""
    return count or len(os.sched_getaffinity(0))


def set_threads(count: int) -> None:
    """Compute threads of torch in this process; 0 means one for each core it may run on."""
    torch.set_num_threads(num_threads(count))


def instruction_set(device: torch.device) -> str:
    """What the arithmetic of this device depends on: the processor's vector instructions, or the device's model."""
    if device.type == "cpu":
        name = torch.backends.cpu.get_cpu_capability().lower()
        return "-".join([name, *sorted(FAST_BF16_FLAGS & cpu_flags())])
    return torch.cuda.get_device_name(device).replace(" ", "-").lower() if device.type == "cuda" else device.type


def pool_bytes(kv_memory_gib: float, device: torch.device) -> int:
    """Memory for the KV pool; 0 means a default that suits the device."""
    if kv_memory_gib > 0:
        return int(kv_memory_gib * GIB)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * DEVICE_POOL_SHARE)
    return CPU_POOL_BYTES
