"""The generic path over our CPU kernels: close to transformers, the same bits in any crowd, one copy of the weights."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.worker.kernels.native import ISA_NAMES, kernels_of
from tests.worker.models.families import FAMILIES, SIZES, VOCAB_SIZE, config_of, make_network
from tests.worker.models.lean import CPU, model_folder, serve
from worker.engine.ragged_batch import RaggedRow, build_batch
from worker.models.generic import GenericModel
from worker.models.packed_modules import ExpertsModule, LinearModule, NormModule, PackedRows, StoredRows
from worker.models.packing import Precision, fused_norm, packed_model
from worker.models.refusal import ModelRefused

LENGTH = 30
PAGE_SIZE = 4
NUM_PAGES = 300
BF16 = Precision(torch.bfloat16, "none")
F32 = Precision(torch.float32, "none")


def ids_of(number: int, length: int = LENGTH) -> list[int]:
    dice = random.Random(number)
    return [dice.randrange(VOCAB_SIZE) for _ in range(length)]


def packed(network: Any, precision: Precision = F32, isa: str = ISA_NAMES[0]) -> GenericModel:
    model = packed_model(network, kernels_of(isa), PAGE_SIZE, precision)
    model.allocate(NUM_PAGES)
    return model


def logits_of(model: GenericModel, parts: list[tuple[list[int], int, list[int]]]) -> list[torch.Tensor]:
    rows = [RaggedRow(ids, start, pages, wants_all_logits=True) for ids, start, pages in parts]
    return list(torch.split(model.forward(build_batch(rows, PAGE_SIZE, CPU)), [len(ids) for ids, _, _ in parts]))


def own_logits(network: Any, ids: list[int]) -> torch.Tensor:
    network.set_attn_implementation("eager")
    with torch.no_grad():
        logits: torch.Tensor = network(torch.tensor([ids]), use_cache=False).logits[0]
    return logits


def pages_for(number: int) -> list[int]:
    return list(range(number * 8, number * 8 + 8))


@pytest.mark.parametrize("family", FAMILIES)
def test_given_bfloat16_weights_then_logits_stay_close_to_those_of_float32(family: str) -> None:
    network, exact = make_network(config_of(family), torch.bfloat16), make_network(config_of(family))
    for to, stored in zip(exact.parameters(), network.parameters(), strict=True):
        to.data.copy_(stored.data)
    expected = own_logits(exact, ids_of(1))
    (found,) = logits_of(packed(network, BF16), [(ids_of(1), 0, pages_for(3))])
    errors = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert errors.median() < 0.02  # a router may send a single token elsewhere


@pytest.mark.parametrize("family", ["Llama", "Gemma3Text", "GPT2", "Phi3"])
@pytest.mark.parametrize("isa", ISA_NAMES)
def test_given_a_crowd_then_each_token_has_the_bits_it_has_alone(family: str, isa: str) -> None:
    model = packed(make_network(config_of(family), torch.bfloat16), BF16, isa)
    alone = [logits_of(model, [(ids_of(number), 0, pages_for(0))])[0] for number in range(32)]
    for count in (2, 8, 32):
        lengths = [random.Random(number).randint(2, LENGTH) for number in range(count)]
        prompts = [ids_of(number)[:length] for number, length in enumerate(lengths)]
        starts = [(ids[:-1], 0, pages_for(number)) for number, ids in enumerate(prompts)]
        ends = [(ids[-1:], len(ids) - 1, pages_for(number)) for number, ids in enumerate(prompts)]
        for parts in (starts, ends):
            for number, ((ids, start, _), rows) in enumerate(zip(parts, logits_of(model, parts), strict=True)):
                assert torch.equal(rows, alone[number][start : start + len(ids)])


def kinds_of(network: Any) -> dict[type, int]:
    kinds = (nn.Linear, nn.Embedding, LinearModule, NormModule, ExpertsModule, PackedRows, StoredRows)
    return {kind: count for kind in kinds if (count := sum(type(each) is kind for each in network.modules()))}


def test_given_tied_weights_then_the_embedding_reads_those_of_the_head() -> None:
    network = make_network(config_of("GPT2"), torch.bfloat16)
    packed(network, BF16)
    assert kinds_of(network) == {LinearModule: 9, PackedRows: 1, StoredRows: 1}
    assert sum(parameter.numel() for parameter in network.parameters() if parameter.dim() > 1) == 256 * 32


def test_given_a_mixture_then_its_experts_and_norms_are_packed_too() -> None:
    network = make_network(config_of("Mixtral"))
    packed(network)
    assert kinds_of(network) == {nn.Embedding: 1, LinearModule: 9, NormModule: 5, ExpertsModule: 2}


class ReadsAnother(nn.Module):
    """Computes with the weight of a module that is not its own."""

    def __init__(self, other: nn.Linear) -> None:
        super().__init__()
        self.other = other

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.other.weight)


def test_given_a_weight_that_another_module_reads_then_it_goes_back_to_torch() -> None:
    network = make_network(config_of("Llama"))
    mlp = network.model.layers[1].mlp
    mlp.up_proj = ReadsAnother(mlp.up_proj)
    expected = own_logits(network, ids_of(2))
    network.set_attn_implementation("headrace_paged")
    model = packed(network)
    assert kinds_of(network) == {nn.Embedding: 1, nn.Linear: 1, LinearModule: 14, NormModule: 5}
    torch.testing.assert_close(logits_of(model, [(ids_of(2), 0, pages_for(1))])[0], expected, atol=2e-4, rtol=2e-4)


def test_given_a_module_that_reads_a_tied_embedding_then_the_model_is_refused_on_kernels() -> None:
    network = make_network(config_of("GPT2"))
    embedding = network.transformer.wte
    network.transformer.ln_f.register_forward_hook(lambda _module, _args, output: output + embedding.weight[0])
    with pytest.raises(ModelRefused, match="logits change by nan"):
        packed(network)


def test_given_a_norm_that_computes_otherwise_then_it_is_left_alone() -> None:
    class HalfRMSNorm(nn.RMSNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0.5 * super().forward(x)

    kernels = kernels_of(ISA_NAMES[0])
    plain = nn.RMSNorm(24, eps=1e-5)
    found = fused_norm(plain, kernels)
    assert found is not None
    x = torch.randn(2, 5, 24)
    torch.testing.assert_close(found(x), plain(x))
    assert fused_norm(HalfRMSNorm(24, eps=1e-5), kernels) is None


@pytest.fixture
def gemma(tmp_path: Path, smollm2_folder: Path) -> Path:
    """A model that the lean decoder leaves to the generic path, wide enough to be quantized."""
    sizes = {**SIZES, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "vocab_size": 160}
    network = make_network(type(config_of("Gemma2"))(**sizes), torch.bfloat16)
    return model_folder(network, tmp_path / "model", smollm2_folder)


@pytest.mark.parametrize(("quantization", "error"), [("int8", 0.05), ("int4", 0.4)])
def test_given_a_quantization_then_the_generic_path_keeps_its_weights_so(
    quantization: str, error: float, gemma: Path
) -> None:
    plain, served = (serve(gemma, quantization=name, page_size=PAGE_SIZE) for name in ("none", quantization))
    logits = []
    for each in (plain, served):
        assert isinstance(each.model, GenericModel)
        each.model.allocate(8)
        logits += logits_of(each.model, [(ids_of(1), 0, pages_for(0))])
    assert 0 < (logits[1] - logits[0]).norm() < error * logits[0].norm()
    assert served.fingerprint.split("/")[1:4] == ["bfloat16", quantization, "tp1"]
    assert served.fingerprint.split("/")[-1] == plain.fingerprint.split("/")[-1]


def test_given_kernels_then_the_arithmetic_of_the_generic_path_is_named_after_them(gemma: Path) -> None:
    assert serve(gemma).fingerprint.startswith(f"generic3-{ISA_NAMES[0]}-")
    assert serve(gemma, dtype="float32").fingerprint.split("/")[1] == "float32"
    assert not serve(gemma, cpu_kernels="none").fingerprint.startswith("generic")


def test_given_heads_too_wide_for_the_kernels_then_torch_serves_the_model(
    tmp_path: Path, smollm2_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = make_network(type(config_of("Gemma2"))(**{**SIZES, "head_dim": 264}))
    folder = model_folder(network, tmp_path / "model", smollm2_folder)
    with caplog.at_level("INFO", "headrace.engine"):
        assert not serve(folder).fingerprint.startswith("generic")
    assert "nor do our kernels: heads of 264 and 264 elements" in caplog.text


def test_given_pages_to_scrub_then_they_hold_zeros_and_their_neighbours_what_they_held() -> None:
    model = packed(make_network(config_of("Llama")))
    logits_of(model, [(ids_of(1), 0, pages_for(0))])
    model.scrub([1, 3])
    for layer in model._pool.layers:
        for side in (layer.keys, layer.values):
            assert [bool(side[page].any()) for page in range(5)] == [True, False, True, False, True]
