"""``python -m ops.bench.step_time [FOLDER]``: how long a step takes, lean decoder and generic path in turn.

Only the forward pass, in this process: decode steps of 1, 8 and 32 sequences, and one wide prefill. The two paths are
measured alternately, so that what else the machine does meanwhile hits both; the best time counts, since a
disturbance only adds. A decode step reads its weights and KV pages once, so it is set against the rate at which the
same threads read memory in the same run.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

# As in a worker, and before torch is loaded: OpenMP's threads would else spin while the others compute.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec
import torch

from ops.bench.path_times import Timing, decode_name, path_table
from worker.engine.device import num_threads, set_threads
from worker.engine.ragged_batch import RaggedBatch, RaggedRow, build_batch
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.linear import huge_memory
from worker.kernels.dispatch import cpu_kernels
from worker.models.choice import load_served_model
from worker.models.decoder import LeanDecoder
from worker.models.over_transformers import load_packed
from worker.models.served import ServedModel
from worker.protocol.model_identity import resolve_model
from worker.settings import WorkerSettings

CPU = torch.device("cpu")
PAGE_SIZE = 32
READ_BYTES = 2**28
BATCHES = (1, 8, 32)


@dataclass(frozen=True)
class Sizes:
    """Tokens before a decode step, tokens of the prefill, and how often each path is tried."""

    context: int
    prefill: int
    repetitions: int


def measure(folder: str, settings: WorkerSettings, sizes: Sizes) -> list[Timing]:
    """Times both paths on the model in `folder`."""
    set_threads(settings.threads)
    kernels = cpu_kernels(settings.cpu_kernels, settings.threads)
    lean = load_served_model(settings, folder, CPU)
    if kernels is None or not isinstance(lean.model, LeanDecoder):
        raise SystemExit("there is no lean decoder to measure here")
    generic = load_packed(settings, folder, kernels)
    pages_each = -(-max(sizes.context, sizes.prefill) // PAGE_SIZE)
    for served in (lean, generic):
        served.model.allocate(max(BATCHES) * pages_each)
    bytes_per_s = _read_rate(kernels)
    timings = []
    for count in BATCHES:
        batch = _decode_batch(count, sizes.context, pages_each)
        page_bytes = lean.model.bytes_per_page * count * sizes.context / PAGE_SIZE
        least_s = (lean.model.weight_bytes + page_bytes) / bytes_per_s
        timings.append(_compare(decode_name(count), lean, generic, batch, sizes.repetitions, least_s))
    row = RaggedRow(_ids(sizes.prefill), 0, range(pages_each), wants_last_logits=True)
    prefill = build_batch([row], PAGE_SIZE, CPU)
    timings.append(_compare(f"prefill, {sizes.prefill} tokens", lean, generic, prefill, sizes.repetitions, None))
    return timings


def _decode_batch(count: int, context: int, pages_each: int) -> RaggedBatch:
    rows = [
        RaggedRow([5], context - 1, range(pages_each * index, pages_each * (index + 1)), wants_last_logits=True)
        for index in range(count)
    ]
    return build_batch(rows, PAGE_SIZE, CPU)


def _ids(count: int) -> list[int]:
    return [3 + place % 100 for place in range(count)]


def _compare(
    name: str, lean: ServedModel, generic: ServedModel, batch: RaggedBatch, repetitions: int, least_s: float | None
) -> Timing:
    passes = [lambda: lean.model.forward(batch), lambda: generic.model.forward(batch)]
    times = [[_seconds(each) for each in passes] for _ in range(repetitions + 1)][1:]  # the first one warms up
    lean_s, generic_s = (min(column) for column in zip(*times, strict=True))
    return Timing(name, len(batch.token_ids), lean_s, generic_s, least_s)


def _read_rate(kernels: Kernels) -> float:
    """Bytes a second that all threads read from memory."""
    memory = huge_memory(READ_BYTES)
    memory.fill_(1)
    return READ_BYTES / min(_seconds(lambda: kernels.read_memory(memory)) for _ in range(9))


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="model folder; the default model where absent")
    parser.add_argument("--threads", type=int, default=0, help="0 means one for each core")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    folder = options.folder or resolve_model("")[0]
    sizes = Sizes(64, 64, 1) if options.quick else Sizes(256, 512, 7)
    settings = WorkerSettings(threads=options.threads, page_size=PAGE_SIZE, device="cpu")
    timings = measure(folder, settings, sizes)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(timings))
    else:
        print(f"{num_threads(options.threads)} threads, context of {sizes.context} tokens\n\n{path_table(timings)}")


if __name__ == "__main__":
    main()
