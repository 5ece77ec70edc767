"""Compiles the kernels: once for each instruction set, compiler and state of the sources, into the user's cache."""

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from worker.kernels.cpu.isa import Isa
from worker.protocol.model_identity import cache_folder

logger = logging.getLogger("headrace.engine")

SOURCES = Path(__file__).parent
COMPILERS = ("g++", "c++", "clang++")
# No -ffast-math and no contraction: which sums are fused must not depend on what the compiler makes of a loop.
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")


class CannotBuild(RuntimeError):
    """The kernels cannot be compiled here; the message says why."""


def library_file(isa: Isa, extra_flags: Sequence[str] = ()) -> Path:
    """The shared library for `isa`, compiled now unless an earlier call has. Raises CannotBuild."""
    compiler = find_compiler()
    flags = (*FLAGS, *isa.compiler_flags, *extra_flags)
    folder = cache_folder() / "kernels"
    wanted = folder / f"headrace-{isa.name}-{_digest(compiler, flags)}.so"
    try:
        if not wanted.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "lock"):
                if not wanted.exists():
                    _build(compiler, flags, wanted)
    except OSError as error:
        raise CannotBuild(f"no place to keep them: {error}") from error
    return wanted


def find_compiler() -> str:
    """The user's CXX, else the first C++ compiler on the path. Raises CannotBuild."""
    for name in filter(None, (os.environ.get("CXX"), *COMPILERS)):
        if found := shutil.which(name):
            return found
    raise CannotBuild("there is no C++ compiler")


def _digest(compiler: str, flags: Sequence[str]) -> str:
    """16 hex digits of everything the library is made from."""
    digest = hashlib.sha256()
    try:
        digest.update(subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotBuild(f"{compiler} does not run: {error}") from error
    digest.update("\0".join(flags).encode())
    for source in sorted(SOURCES.glob("*.[ch]*")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Workers started together wait for the one that compiles."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(compiler: str, flags: Sequence[str], wanted: Path) -> None:
    started = time.monotonic()
    logger.info("compiling the CPU kernels with %s, once", compiler)
    with tempfile.TemporaryDirectory(dir=wanted.parent) as name:
        folder = Path(name)
        sources = sorted(SOURCES.glob("*.cpp"), key=lambda source: -source.stat().st_size)
        objects = [folder / f"{source.stem}.o" for source in sources]
        commands = [
            [compiler, *flags, "-c", str(source), "-o", str(target)]
            for source, target in zip(sources, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, commands))
        linked = folder / wanted.name
        _run([compiler, *flags, "-shared", *map(str, objects), "-o", str(linked)])
        linked.replace(wanted)
    logger.info("compiled the CPU kernels in %.1f s", time.monotonic() - started)


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line] or ["without a word"]
        raise CannotBuild(f"{command[0]} fails: {lines[0]}") from error
