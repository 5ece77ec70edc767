"""When the lean decoder computes a model, and that everything else goes the generic path."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.worker.models.families import SIZES, make_network
from tests.worker.models.lean import lean_decoder, logits_of, model_folder, serve
from worker.models.checkpoint import Checkpoint
from worker.models.decoder import LeanDecoder, RopeTable
from worker.models.decoder_config import NotLean, decoder_config, rotary_frequencies
from worker.models.generic import GenericModel
from worker.models.refusal import ModelRefused
from worker.protocol.configuration import BadSetting


def llama(folder: Path, tokenizer_folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    config = transformers.LlamaConfig(**{**SIZES, **changes})
    return model_folder(make_network(config, dtype), folder / "model", tokenizer_folder)


@pytest.fixture
def folder(tmp_path: Path, smollm2_folder: Path) -> Path:
    return llama(tmp_path, smollm2_folder)


def test_given_a_llama_then_the_lean_decoder_computes_it(folder: Path) -> None:
    served = serve(folder)
    assert isinstance(served.model, LeanDecoder)
    assert served.model.vocab_size == SIZES["vocab_size"]
    assert served.end_token_ids == {2}


def test_what_the_lean_decoder_does_without_is_not_loaded_since_it_would_double_the_start(folder: Path) -> None:
    program = f"""
import sys
import torch
import worker.__main__
from worker.models.choice import load_served_model
from worker.settings import WorkerSettings
load_served_model(WorkerSettings(device="cpu"), {str(folder)!r}, torch.device("cpu"))
print(sorted({{"transformers.modeling_utils", "torch.distributed.tensor"}} & set(sys.modules)))
"""
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{}"),
        ("config.json", b"{"),
        ("model.safetensors", b"\x80"),
        ("model.safetensors", None),
        ("config.json", b'{"model_type": "llama", "hidden_size": 123, "num_attention_heads": 9}'),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", None),
    ],
)
def test_given_a_broken_file_then_the_model_is_refused_in_one_line(
    folder: Path, name: str, content: bytes | None
) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(ModelRefused) as refused:
        serve(folder)
    assert str(folder) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_given_kernels_switched_off_then_the_generic_path_computes_it(folder: Path) -> None:
    assert isinstance(serve(folder, cpu_kernels="none").model, GenericModel)


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("Gemma2", {}, "models of type gemma2 are not among its families"),
        ("Llama", {"hidden_act": "gelu"}, "activation gelu"),
        ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "kind dynamic"),
    ],
)
def test_given_a_trait_it_does_not_know_then_the_generic_path_computes_it_and_the_log_says_why(
    family: str, changes: dict[str, Any], reason: str, tmp_path: Path, smollm2_folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    folder = model_folder(make_network(config), tmp_path / "model", smollm2_folder)
    with caplog.at_level(logging.INFO, "headrace.engine"):
        assert isinstance(serve(folder, dtype="float32").model, GenericModel)
    assert reason in caplog.text


def test_given_a_field_that_a_later_transformers_added_then_it_is_not_guessed_at() -> None:
    class LaterConfig(transformers.LlamaConfig):  # type: ignore[misc]
        residual_scale: float = 1.0

    config = LaterConfig(**SIZES)
    decoder_config(config)
    config.residual_scale = 0.5
    with pytest.raises(NotLean, match=r"residual_scale=0\.5 is unknown to it"):
        decoder_config(config)


def test_given_a_weight_it_does_not_read_then_the_generic_path_computes_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from safetensors.torch import load_file, save_file  # noqa: PLC0415

    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.extra.weight"] = torch.ones(2)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with caplog.at_level(logging.INFO, "headrace.engine"):
        assert isinstance(serve(folder).model, GenericModel)
    assert "it has model.layers.0.self_attn.extra.weight, which is unknown to it" in caplog.text


def test_given_weights_in_several_files_then_they_are_found(tmp_path: Path, smollm2_folder: Path) -> None:
    network = make_network(transformers.LlamaConfig(**SIZES))
    whole = model_folder(network, tmp_path / "whole", smollm2_folder)
    parts = model_folder(network, tmp_path / "parts", smollm2_folder)
    (parts / "model.safetensors").unlink()
    network.save_pretrained(parts, max_shard_size="20KB")
    assert len(list(parts.glob("*.safetensors"))) > 1
    assert serve(parts).fingerprint == serve(whole).fingerprint
    pages = [0, 1]
    assert torch.equal(
        logits_of(lean_decoder(parts), [([5, 6, 7], 0, pages)])[0],
        logits_of(lean_decoder(whole), [([5, 6, 7], 0, pages)])[0],
    )


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        (torch.float32, "auto", "float32"),
        (torch.bfloat16, "auto", "bfloat16"),
        (torch.float16, "auto", "float32"),
        (torch.bfloat16, "float32", "float32"),
        (torch.float32, "bfloat16", "bfloat16"),
    ],
)
def test_given_auto_then_weights_are_computed_in_the_type_they_are_stored_in(
    stored: torch.dtype, wanted: str, expected: str, tmp_path: Path, smollm2_folder: Path
) -> None:
    served = serve(llama(tmp_path, smollm2_folder, stored), dtype=wanted)
    assert served.fingerprint.split("/")[1:4] == [expected, "none", "tp1"]


def test_given_a_quantization_then_it_is_in_the_fingerprint_and_an_unknown_one_is_refused(folder: Path) -> None:
    assert serve(folder, quantization="int8").fingerprint.split("/")[2] == "int8"
    with pytest.raises(BadSetting, match="HEADRACE_QUANTIZATION='int2': expected none, int8, int4"):
        serve(folder, quantization="int2")
    with pytest.raises(BadSetting, match="HEADRACE_CPU_KERNELS='neon': expected auto, "):
        serve(folder, cpu_kernels="neon")


def test_given_a_quantization_on_the_generic_path_then_it_is_refused(folder: Path) -> None:
    with pytest.raises(BadSetting, match="HEADRACE_QUANTIZATION=int8: not with this model: it needs our CPU kernels"):
        serve(folder, quantization="int8", cpu_kernels="none")


@pytest.mark.parametrize("is_tied", [False, True])
def test_given_a_loaded_model_then_its_files_are_no_longer_mapped(
    is_tied: bool, tmp_path: Path, smollm2_folder: Path
) -> None:
    folder = llama(tmp_path, smollm2_folder, tie_word_embeddings=is_tied)
    served = serve(folder)
    assert str(folder) not in Path(f"/proc/{os.getpid()}/maps").read_text()
    assert served.model.device == torch.device("cpu")


def test_given_positions_beyond_the_first_table_then_it_grows_without_changing() -> None:
    table = RopeTable(*rotary_frequencies(transformers.LlamaConfig(**SIZES)))
    first = [side.clone() for side in table.up_to(10)]
    grown = table.up_to(5000)
    assert len(grown[0]) >= 5000
    assert all(torch.equal(new[: len(old)], old) for new, old in zip(grown, first, strict=True))


def test_given_text_then_quantized_weights_cost_less_than_a_percent_of_perplexity(smollm2_folder: Path) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415

    text = (Path(__file__).parents[3] / "LICENSE").read_text()
    ids = AutoTokenizer.from_pretrained(smollm2_folder).encode(text)[:400]
    perplexity = {}
    for quantization in ("none", "int8", "int4"):
        model = lean_decoder(smollm2_folder, num_pages=26, quantization=quantization)
        (logits,) = logits_of(model, [(ids, 0, range(26))])
        perplexity[quantization] = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).exp().item()
    assert perplexity["int8"] < 1.01 * perplexity["none"]
    # This checkpoint's weights lie on a grid of four bits in groups of 32 already: a check of the format, not of how
    # well four bits would do for other weights.
    assert perplexity["int4"] < 1.05 * perplexity["none"]


def test_a_hash_tells_fine_tunes_apart(tmp_path: Path, smollm2_folder: Path) -> None:
    network = make_network(transformers.LlamaConfig(**SIZES))
    names = ["model.layers.0.mlp.up_proj.weight", "model.norm.weight"]
    before = Checkpoint(str(model_folder(network, tmp_path / "a", smollm2_folder))).hash(names)
    assert Checkpoint(str(model_folder(network, tmp_path / "b", smollm2_folder))).hash(names) == before
    network.model.layers[0].mlp.up_proj.weight.data += 1e-3
    assert Checkpoint(str(model_folder(network, tmp_path / "c", smollm2_folder))).hash(names) != before
