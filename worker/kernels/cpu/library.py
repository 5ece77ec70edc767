"""The compiled kernels as Python calls them: one library, one crew of threads."""

import ctypes
from ctypes import POINTER, c_float, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from worker.engine.ragged_batch import RaggedBatch
from worker.kernels.cpu.structures import Attention, Batch, Decoder, Drawn, KVLayout, Linear, Pages, Sampling

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "hr_panel_width": (c_int64, []),
    "hr_crew_create": (c_void_p, [c_int64]),
    "hr_crew_destroy": (None, [c_void_p]),
    "hr_linear_bytes": (c_int64, [c_int64] * 3),
    "hr_pack_linear": (None, [c_void_p, c_int64, c_void_p, c_int64, c_int64, c_int64, c_void_p]),
    "hr_linear_forward": (None, [c_void_p, POINTER(Linear), c_void_p, c_int64, c_int64, c_void_p, c_int64]),
    "hr_unpack_rows": (None, [c_void_p, POINTER(Linear), c_void_p, c_int64, c_void_p]),
    "hr_rms_norm": (None, [c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_float, c_void_p]),
    "hr_page_bytes_of_keys": (c_int64, [POINTER(KVLayout)]),
    "hr_page_bytes_of_values": (c_int64, [POINTER(KVLayout)]),
    "hr_write_kv": (None, [c_void_p, POINTER(KVLayout), POINTER(Batch), c_void_p, c_void_p, Pages]),
    "hr_attend": (
        None,
        [c_void_p, POINTER(KVLayout), POINTER(Attention), POINTER(Batch), c_void_p, Pages, c_void_p],
    ),
    "hr_decode": (None, [c_void_p, POINTER(Decoder), POINTER(Batch), c_void_p]),
    "hr_sample": (None, [c_void_p, c_void_p, c_int64, POINTER(Sampling), c_int64, POINTER(Drawn)]),
    "hr_read_memory": (c_uint64, [c_void_p, c_void_p, c_int64]),
}


class Kernels:
    """A loaded library and its crew of `num_threads` threads, the calling one included.

    Calls release the GIL. One thread calls at a time: a crew works on one thing. Raises OSError where the library
    cannot be loaded or the system does not allow what it needs.
    """

    def __init__(self, path: Path, isa: str, num_threads: int) -> None:
        self.isa = isa
        self.num_threads = num_threads
        self.library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        self.panel_width: int = self.library.hr_panel_width()
        self.crew = c_void_p(self.library.hr_crew_create(num_threads))
        if not self.crew:
            raise OSError("the system does not let this process use the instruction set")

    def __del__(self) -> None:
        if crew := getattr(self, "crew", None):
            self.library.hr_crew_destroy(crew)

    def padded(self, columns: int) -> int:
        """`columns` rounded up to whole panels."""
        return -(-columns // self.panel_width) * self.panel_width

    def read_memory(self, tensor: torch.Tensor) -> None:
        """Reads a contiguous tensor once with all threads, in whole MiB: for measuring what the machine can."""
        self.library.hr_read_memory(self.crew, tensor.data_ptr(), tensor.nbytes)


@dataclass(frozen=True, eq=False)
class NativeBatch:
    """A RaggedBatch as the kernels read it. It keeps alive what it points to."""

    structure: Batch
    kept: tuple[torch.Tensor, ...]


def native_batch(batch: RaggedBatch) -> NativeBatch:
    """`batch`, whose tensors lie on the CPU."""
    offsets = torch.tensor((*batch.query_offsets, *batch.kv_lengths), dtype=torch.int64)
    num_sequences = len(batch.kv_lengths)
    kept = tuple(
        tensor.contiguous()
        for tensor in (batch.token_ids, batch.positions, batch.slots, batch.logit_rows, batch.page_table)
    )
    pointers = [tensor.data_ptr() for tensor in (*kept, offsets, offsets[num_sequences + 1 :])]
    sizes = (len(batch.token_ids), num_sequences, len(batch.logit_rows), batch.page_table.shape[1])
    return NativeBatch(Batch(*sizes, *pointers), (*kept, offsets))
