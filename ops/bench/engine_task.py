"""What the engine is asked to do in process, and what it reports: the words between the run and that process."""

import subprocess
import sys
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from ops.bench.measurement import Measurement
from ops.bench.server import RunningServer, own_environment

ENGINE = "engine in process"
ENGINE_INT8 = "engine int8"
ENGINES: dict[str, dict[str, str]] = {ENGINE: {}, ENGINE_INT8: {"HEADRACE_QUANTIZATION": "int8"}}
ENGINE_WORKLOADS = ("c32",)  # of the plain one, set against the whole stack's
IN_TURNS = "headrace in turns"  # with the engine in process: one request here, the same there, and so on
TURN_WORKLOADS = ("brief", "c1")  # so short that a machine whose speed varies would hide the difference
BATCHES = (32, 8, 1)
CONTEXT = 256
NUM_STEPS = 24


class Task(msgspec.Struct, frozen=True):
    """What to run: workloads, then `num_steps` decode steps of each batch size at about `context` tokens.

    With a `port` a server there, of process `pid`, is asked in turns with the engine, and no steps are timed.
    """

    engine: str
    model: str
    folder: str
    workloads: list[str]
    seed: int
    is_quick: bool
    batches: list[int]
    context: int
    num_steps: int
    port: int = 0
    pid: int = 0


class Step(msgspec.Struct, frozen=True):
    """A decode step of `batch` sequences: the median, and the part of it outside the forward pass.

    `context` is the number of tokens before the step, on average over sequences and steps.
    """

    model: str
    engine: str
    batch: int
    context: float
    step_s: float
    bookkeeping_s: float


class Report(msgspec.Struct, frozen=True):
    measurements: list[Measurement]
    steps: list[Step]


def new_task(engine: str, model: str, folder: str, workloads: list[str], seed: int, *, is_quick: bool) -> Task:
    """Quick tasks have short contexts and few steps."""
    divisor = 8 if is_quick else 1
    return Task(
        engine, model, folder, workloads, seed, is_quick, list(BATCHES), CONTEXT // divisor, NUM_STEPS // divisor
    )


def in_turns_with(server: RunningServer, task: Task) -> Task:
    return replace(task, port=server.launch.port, pid=server.pid)


def measure_engine(task: Task, settings: Mapping[str, str]) -> Report:
    """In a process of its own, set up as a worker is. Raises subprocess.CalledProcessError."""
    environ = {**own_environment(), "OMP_WAIT_POLICY": "PASSIVE", **settings, **ENGINES[task.engine]}
    command = [sys.executable, "-m", "ops.bench.engine_alone"]
    result = subprocess.run(command, input=msgspec.json.encode(task), stdout=subprocess.PIPE, env=environ, check=True)
    return msgspec.json.decode(result.stdout, type=Report)
