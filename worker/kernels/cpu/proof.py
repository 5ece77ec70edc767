"""Libraries that have passed their self-test on this processor. The verdict is kept beside the library."""

import hashlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

from worker.kernels.cpu.build import SOURCES, library_file, locked
from worker.kernels.cpu.isa import Isa

logger = logging.getLogger("headrace.engine")

PASSED = "passed"
TIME_LIMIT_S = 120.0
# Whoever sends these means the process, not the library: no verdict.
OUTSIDE_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TELLING = ("vendor_id", "cpu family", "model", "stepping", "microcode", "flags")


class Unproven(RuntimeError):
    """The library has not passed its self-test on this processor; the message says why."""


def proven_library(isa: Isa) -> Path:
    """The shared library for `isa`, compiled and tested now unless an earlier call has. Raises CannotBuild, Unproven.

    The test runs in a process of its own: a crash costs the instruction set, never the worker.
    """
    library = library_file(isa)
    kept = library.with_name(f"{library.stem}-{_processor()}.verdict")
    if not kept.exists():
        with locked(library.with_name("lock")):
            if not kept.exists():
                logger.info("testing the CPU kernels for %s, once", isa.name)
                _write(kept, _verdict(library))
    if (verdict := kept.read_text()) != PASSED:
        raise Unproven(f"self-test failed: {verdict}")
    return library


def _verdict(library: Path) -> str:
    """PASSED, or what went wrong. Raises Unproven where the test could not say."""
    command = [sys.executable, "-m", "worker.kernels.cpu.self_test", str(library)]
    try:
        done = subprocess.run(
            command, cwd=SOURCES.parents[2], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unproven(f"the self-test took more than {TIME_LIMIT_S:.0f} s") from error
    if done.returncode == 0:
        return PASSED
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        if -done.returncode in OUTSIDE_SIGNALS:
            raise Unproven(f"the self-test was ended by {name}")
        return name
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """8 hex digits of the processor and the system's version: one cache may serve different machines."""
    try:
        first = cpuinfo.read_text().partition("\n\n")[0]
    except OSError:
        first = ""
    telling = [line for line in first.splitlines() if line.startswith(TELLING)]
    return hashlib.sha256("\n".join([os.uname().release, *telling]).encode()).hexdigest()[:8]


def _write(path: Path, verdict: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(verdict)
    temporary.replace(path)
