"""``python -m ops.bench.roofline``: how fast this machine reads memory and multiplies matrices at best.

A step cannot be faster than its weights and KV pages are read once, nor than its multiplications are done. Prints JSON.
"""

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ops.bench.bench_model import BenchModel
from ops.bench.machine import num_cores

READ_MIB = 256  # as large as a small model: the caches hold little of it
MATRIX_SIDE = 2048
REPETITIONS = 7
# Sums in eight lanes, so that the compiler keeps several loads in flight.
_READ_LOOP = """
#include <stddef.h>
#include <stdint.h>
uint64_t read_all(const uint64_t *values, size_t count) {
  uint64_t sums[8] = {0};
  for (size_t i = 0; i + 32 <= count; i += 32)
    for (size_t j = 0; j < 32; j++) sums[j % 8] += values[i + j];
  uint64_t sum = 0;
  for (int j = 0; j < 8; j++) sum += sums[j];
  return sum;
}
"""


class Roofline(msgspec.Struct, frozen=True):
    """Measured rates of the machine: bytes a second with one thread and with all, multiply-adds count as two FLOP.

    The rate of FLOP is the one in bf16 where the processor computes that itself, else the one in float32.
    """

    read_1_bytes_per_s: float
    read_bytes_per_s: float
    flop_per_s: float
    has_fast_bf16: bool

    def step_s(self, model: BenchModel, batch: float, context: float) -> float:
        """The shortest possible decode step of `batch` sequences, each `context` tokens long."""
        read_s = (model.weight_bytes + batch * context * model.kv_bytes) / self.read_bytes_per_s
        return max(read_s, 2 * model.num_parameters * batch / self.flop_per_s)

    def prefill_s(self, model: BenchModel, num_tokens: float) -> float:
        return 2 * model.num_parameters * num_tokens / self.flop_per_s

    def best_of(self, other: "Roofline") -> "Roofline":
        """The higher of each rate: what disturbs a measurement only lowers it."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Roofline(*map(max, pairs))


def measure_roofline() -> Roofline:
    """In a process of its own, so that this one stays free of torch."""
    result = subprocess.run([sys.executable, "-m", "ops.bench.roofline"], capture_output=True, check=True)
    return msgspec.json.decode(result.stdout, type=Roofline)


def _measure() -> Roofline:
    import torch  # noqa: PLC0415  only in the process of its own

    from worker.engine.device import FAST_BF16_FLAGS, cpu_flags  # noqa: PLC0415  loads torch

    torch.set_num_threads(num_cores())
    read = _read_function()
    buffer = torch.ones(READ_MIB * 2**20, dtype=torch.uint8)
    left, right = (torch.rand(MATRIX_SIDE, MATRIX_SIDE) for _ in range(2))
    num_flop = 2 * MATRIX_SIDE**3
    flop_per_s = num_flop / _best_s(lambda: torch.mm(left, right))
    has_fast_bf16 = bool(cpu_flags() & FAST_BF16_FLAGS)
    if has_fast_bf16:  # elsewhere torch takes minutes over it
        left, right = left.bfloat16(), right.bfloat16()
        flop_per_s = max(flop_per_s, num_flop / _best_s(lambda: torch.mm(left, right)))
    return Roofline(
        read_1_bytes_per_s=_read_rate(read, buffer.data_ptr(), buffer.nbytes, 1),
        read_bytes_per_s=_read_rate(read, buffer.data_ptr(), buffer.nbytes, num_cores()),
        flop_per_s=flop_per_s,
        has_fast_bf16=has_fast_bf16,
    )


def _read_function() -> Callable[[int, int], int]:
    """The read loop, compiled for this machine. It takes an address and a number of 8-byte values."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise FileNotFoundError("no C compiler on the path")
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name) / "read.c", Path(name) / "read.so"
        source.write_text(_READ_LOOP)
        subprocess.run([compiler, "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library], check=True)
        function = ctypes.CDLL(str(library)).read_all
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    function.restype = ctypes.c_uint64
    return function


def _read_rate(read: Callable[[int, int], int], address: int, size: int, num_threads: int) -> float:
    """Bytes a second when each thread reads its share; calls through ctypes run side by side."""
    share = size // num_threads
    with ThreadPoolExecutor(num_threads) as pool:

        def read_all() -> None:
            list(pool.map(lambda i: read(address + i * share, share // 8), range(num_threads)))

        return share * num_threads / _best_s(read_all)


def _best_s(run: Callable[[], object]) -> float:
    run()
    seconds = []
    for _ in range(REPETITIONS):
        began_s = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began_s)
    return min(seconds)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(_measure()))
