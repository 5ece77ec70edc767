"""What this machine is, and who uses its processors while a workload runs."""

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

DISTURBED_SHARE = 0.05  # of the machine, taken by strangers: figures above are not to be trusted
_QUIET_WINDOW_S = 1.0


@dataclass(frozen=True)
class Usage:
    """Processor seconds used so far: by all, by one server with its children, by this process."""

    at_s: float
    all_s: float
    server_s: float
    own_s: float


def usage(server_pid: int) -> Usage:
    """Now. What the hypervisor gave to other machines counts as used by strangers."""
    times = psutil.cpu_times()
    all_s = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    server_s = sum(_cpu_s(process) for process in process_tree(server_pid))
    return Usage(time.perf_counter(), all_s, server_s, time.process_time())


def foreign_share(before: Usage, after: Usage) -> float:
    """The share of the whole machine that neither the server nor this process used between two moments."""
    ours_s = after.server_s - before.server_s + after.own_s - before.own_s
    foreign_s = after.all_s - before.all_s - ours_s
    return max(0.0, foreign_s) / ((after.at_s - before.at_s) * num_cores())


def wait_until_quiet(server_pid: int, limit_s: float) -> None:
    """Return as soon as strangers leave the machine alone for a moment, or when `limit_s` is over."""
    give_up_at_s = time.monotonic() + limit_s
    while time.monotonic() < give_up_at_s:
        before = usage(server_pid)
        time.sleep(_QUIET_WINDOW_S)
        if foreign_share(before, usage(server_pid)) < DISTURBED_SHARE:
            return


def pss_bytes(server_pid: int) -> int:
    """Memory of the server and its children, what they share counted once."""
    total = 0
    for process in process_tree(server_pid):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def process_tree(pid: int) -> list[psutil.Process]:
    """The process and all it started that still run."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def num_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def describe_machine() -> str:
    """One line: processor, cores, memory, system."""
    memory_gib = psutil.virtual_memory().total / 2**30
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in _cpuinfo("flags").split()]
    return (
        f"{num_cores()} cores of {_cpuinfo('model name') or platform.machine()} ({', '.join(flags) or 'no AVX2'}), "
        f"{memory_gib:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"
    )


def _cpuinfo(field: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
