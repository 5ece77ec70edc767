"""A request's logits have the same bits alone and in any crowd, in any chunks, on any pages, with any threads."""

import itertools
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker.kernels.emulated import rounds_rows
from tests.worker.kernels.native import ISA_NAMES, NATIVE_NAMES
from tests.worker.models.families import SIZES, VOCAB_SIZE
from tests.worker.models.lean import NUM_PAGES, computing_with, lean_decoder, logits_of, model_folder
from worker.models.decoder import LeanDecoder

LENGTH = 150
KINDS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "quantization": "int8"},
    "int4": {"dtype": "bfloat16", "quantization": "int4"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> Path:
    from transformers import LlamaConfig  # noqa: PLC0415

    from tests.worker.models.families import make_network  # noqa: PLC0415

    sizes = {**SIZES, "hidden_size": 96, "intermediate_size": 160, "head_dim": 16, "num_attention_heads": 6}
    return model_folder(make_network(LlamaConfig(**sizes)), tmp_path_factory.mktemp("lean") / "model", smollm2_folder)


def ids_of(number: int, length: int) -> list[int]:
    dice = random.Random(number)
    return [dice.randrange(VOCAB_SIZE) for _ in range(length)]


def pages_of(dice: random.Random, count: int, page_size: int) -> list[list[int]]:
    numbers = iter(dice.sample(range(NUM_PAGES), NUM_PAGES))
    return [list(itertools.islice(numbers, -(-LENGTH // page_size))) for _ in range(count)]


@cache
def alone(model: LeanDecoder, number: int) -> torch.Tensor:
    """All logits of a sequence of the full length, computed at once. Shorter ones are its beginnings."""
    pages = pages_of(random.Random(0), 1, 16)[0]
    return logits_of(model, [(ids_of(number, LENGTH), 0, pages)])[0]


# The emulated ones differ from each other in their bf16 weights only.
CASES = [
    *itertools.product(NATIVE_NAMES, KINDS),
    *[(isa, kind) for isa in ISA_NAMES if isa not in NATIVE_NAMES
      for kind in (KINDS if isa == "avx512bf16-emulated" else ["bfloat16"])],
]  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def model(request: pytest.FixtureRequest, folder: Path) -> LeanDecoder:
    isa, kind = request.param
    with computing_with(isa):
        return lean_decoder(folder, **KINDS[kind])


@pytest.mark.parametrize("count", [2, 3, 8, 32])
def test_given_a_crowd_that_decodes_then_each_token_has_the_bits_it_has_alone(model: LeanDecoder, count: int) -> None:
    dice = random.Random(count)
    lengths = [dice.randint(2, LENGTH) for _ in range(count)]
    pages = pages_of(dice, count, 16)
    prompts = [ids_of(number, length) for number, length in enumerate(lengths)]
    logits_of(model, [(ids[:-1], 0, own) for ids, own in zip(prompts, pages, strict=True)])
    last = logits_of(model, [(ids[-1:], len(ids) - 1, own) for ids, own in zip(prompts, pages, strict=True)])
    for number, (length, row) in enumerate(zip(lengths, last, strict=True)):
        assert torch.equal(row[0], alone(model, number)[length - 1])


@pytest.mark.parametrize("chunk", [1, 7, 16, 64, 100])
def test_given_any_chunks_beside_decoding_neighbours_then_a_prompt_has_the_bits_it_has_whole(
    model: LeanDecoder, chunk: int
) -> None:
    mine, neighbour = pages_of(random.Random(chunk), 2, 16)
    ids, expected = ids_of(1, LENGTH), alone(model, 1)
    found = []
    for start in range(0, LENGTH, chunk):
        beside = (ids_of(2, start + 1)[start:], start, neighbour)
        parts = [beside, (ids[start : start + chunk], start, mine)] if start else [(ids[:chunk], 0, mine)]
        if not start:
            logits_of(model, [(ids_of(2, LENGTH), 0, neighbour)])
        found.append(logits_of(model, parts)[-1])
    assert torch.equal(torch.cat(found), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_given_other_threads_and_page_sizes_then_the_bits_are_the_same(folder: Path, kind: str) -> None:
    expected: torch.Tensor | None = None
    for threads, page_size in ((1, 16), (2, 16), (3, 8), (2, 1), (1, 48)):
        model = lean_decoder(folder, threads=threads, page_size=page_size, **KINDS[kind])
        pages = pages_of(random.Random(page_size), 1, page_size)[0]
        (found,) = logits_of(model, [(ids_of(1, LENGTH), 0, pages)], page_size)
        expected = found if expected is None else expected
        assert torch.equal(found, expected)


@pytest.mark.parametrize("isa", [isa for isa in ISA_NAMES if rounds_rows(isa)])
def test_given_rows_rounded_to_bf16_then_logits_stay_close_to_those_in_float32(folder: Path, isa: str) -> None:
    expected = alone(lean_decoder(folder, dtype="float32"), 1)
    with computing_with(isa):
        found = alone(lean_decoder(folder, dtype="bfloat16"), 1)
    assert (found - expected).norm() < 0.04 * expected.norm()
