"""Lean decoders over networks made in tests, and batches for them."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models import TOKENIZER_FILES
from tests.worker.kernels.native import kernels_of
from worker.engine.ragged_batch import RaggedRow, build_batch
from worker.models import choice
from worker.models.choice import load_served_model
from worker.models.decoder import LeanDecoder
from worker.models.served import ServedModel
from worker.settings import WorkerSettings

CPU = torch.device("cpu")
PAGE_SIZE = 16
NUM_PAGES = 640


def model_folder(network: Any, folder: Path, tokenizer_folder: Path) -> Path:
    """A model folder with the network's weights and a tokenizer."""
    network.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer_folder / name, folder / name)
    return folder


def serve(folder: Path, **settings: Any) -> ServedModel:
    return load_served_model(
        WorkerSettings(**{"device": "cpu", "threads": 2, "page_size": PAGE_SIZE, **settings}), str(folder), CPU
    )


def lean_decoder(folder: Path, *, num_pages: int = NUM_PAGES, **settings: Any) -> LeanDecoder:
    """The folder's model, which must be one for the lean decoder, with pages full of NaN."""
    model = serve(folder, **settings).model
    assert isinstance(model, LeanDecoder)
    model.allocate(num_pages)
    for pool in model.pools:
        pool.fill_(255)
    return model


@contextmanager
def computing_with(isa: str) -> Iterator[None]:
    """Models loaded meanwhile use this instruction set, be it emulated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "cpu_kernels", lambda _, threads: kernels_of(isa, threads))
        yield


def logits_of(
    model: LeanDecoder, parts: Sequence[tuple[Sequence[int], int, Sequence[int]]], page_size: int = PAGE_SIZE
) -> list[torch.Tensor]:
    """All logits of each part: (token ids, place of the first, pages)."""
    rows = [RaggedRow(ids, start, pages, wants_all_logits=True) for ids, start, pages in parts]
    logits = model.forward(build_batch(rows, page_size, CPU))
    return list(torch.split(logits, [len(ids) for ids, _, _ in parts]))
