"""From settings to an engine: sizes, limits, end tokens, fingerprint, and settings that cannot be used."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker.engine.doubles import make_job, run
from tests.worker.models.families import config_of, make_network, save
from worker.engine import device
from worker.engine.draw import Draw, RowParams, SamplingFailed
from worker.engine.sampler import sample
from worker.engine.startup import load_engine
from worker.kernels.cpu.library import Kernels
from worker.models.loader import end_token_ids, load_model, weights_hash
from worker.models.refusal import ModelRefused
from worker.protocol.configuration import BadSetting
from worker.settings import WorkerSettings

CPU = torch.device("cpu")


def cpu_settings(**changes: Any) -> WorkerSettings:
    return WorkerSettings(**{"device": "cpu", "dtype": "float32", "threads": 1, "max_sequences": 4, **changes})


def test_a_folder_becomes_an_engine_that_answers(tiny_model_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine = load_engine(cpu_settings(page_size=16, max_context=64), str(tiny_model_folder))
    assert (engine.vocab_size, engine.max_context, engine.page_size) == (49152, 64, 16)
    assert engine.num_pages == 16  # four sequences of 64 tokens; more could never be filled
    assert engine.fingerprint.split("/")[1:4] == ["float32", "none", "tp1"]
    job = make_job([5, 6, 7], max_tokens=4)
    engine.add(job)
    assert len(run(engine).token_ids(job)) == 4
    assert capfd.readouterr().err == ""  # no progress bars


def test_the_model_bounds_the_context(tiny_model_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headrace.engine"):
        engine = load_engine(cpu_settings(max_context=5000), str(tiny_model_folder))
    assert engine.max_context == 4096
    assert "HEADRACE_MAX_CONTEXT=5000 is more than the model's 4096 tokens" in caplog.text


def test_memory_bounds_the_pages(tiny_model_folder: Path) -> None:
    engine = load_engine(cpu_settings(kv_memory_gib=2**-10, page_size=32), str(tiny_model_folder))
    # Two layers of two heads of 16 keys and 16 values, four bytes each: 512 bytes a token.
    assert engine.num_pages == 2**20 // (512 * 32)


def test_memory_for_less_than_a_page_is_refused(tiny_model_folder: Path) -> None:
    with pytest.raises(BadSetting, match="HEADRACE_KV_MEMORY_GIB=1e-08: one KV page takes 16384 bytes"):
        load_engine(cpu_settings(kv_memory_gib=1e-8), str(tiny_model_folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "abacus"}, "HEADRACE_DEVICE='abacus'"),
        ({"policy": "chaotic"}, "HEADRACE_POLICY='chaotic': expected continuous or static"),
        ({"dtype": "float8"}, "HEADRACE_DTYPE='float8': expected auto, float32 or bfloat16"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        load_engine(cpu_settings(**changes), "/nowhere")


def test_a_model_refused_in_the_probe_is_refused_by_name(tmp_path: Path, smollm2_folder: Path) -> None:
    from transformers import AutoTokenizer, BertConfig  # noqa: PLC0415

    config = BertConfig(
        vocab_size=160, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48
    )
    folder = save(make_network(config), AutoTokenizer.from_pretrained(smollm2_folder), tmp_path / "bert")
    with pytest.raises(
        ModelRefused, match=r"bert \(BertLMHeadModel\) cannot be served: its attention also looks ahead"
    ):
        load_engine(cpu_settings(), str(folder))


@pytest.mark.parametrize("family", ["Llama", "GPTNeoX"])
@pytest.mark.parametrize("kernels", ["auto", "none"])
def test_the_kernels_that_compute_a_model_draw_its_tokens(
    tmp_path: Path, smollm2_folder: Path, monkeypatch: pytest.MonkeyPatch, family: str, kernels: str
) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415

    drawn_with = []

    def spy(logits: torch.Tensor, rows: Sequence[RowParams], used: Kernels | None) -> list[Draw | SamplingFailed]:
        drawn_with.append("none" if used is None else "auto")
        return sample(logits, rows, used)

    monkeypatch.setattr("worker.engine.engine.sample", spy)
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
    engine = load_engine(
        cpu_settings(cpu_kernels=kernels, max_context=64),
        str(save(make_network(config_of(family)), tokenizer, tmp_path / family)),
    )
    engine.add(make_job([5, 6, 7], max_tokens=2))
    run(engine)
    assert drawn_with == [kernels] * 2


def test_the_fingerprint_tells_weights_types_and_nothing_else_apart(tiny_model_folder: Path) -> None:
    same = [load_engine(cpu_settings(page_size=size), str(tiny_model_folder)).fingerprint for size in (8, 16)]
    assert same[0] == same[1]
    other = load_engine(cpu_settings(dtype="bfloat16"), str(tiny_model_folder)).fingerprint
    assert other.split("/")[1] == "bfloat16"


def test_a_fine_tune_has_another_hash() -> None:
    network = make_network(config_of("Llama"))
    before = weights_hash(network)
    assert weights_hash(make_network(config_of("Llama"))) == before
    network.model.layers[0].mlp.up_proj.weight.data += 1e-3
    assert weights_hash(network) != before


class Ids:
    def __init__(self, eos_token_id: Any) -> None:
        self.eos_token_id = eos_token_id


@pytest.mark.parametrize(
    ("generation", "config", "tokenizer", "expected"),
    [
        ([7, 9], 2, 3, {7, 9}),
        (4, [2, 5], 3, {4}),
        (0, 2, 3, {0}),
        (None, [2, 5], 3, {2, 5}),
        ([], None, 3, {3}),
        (None, None, None, set()),
    ],
)
def test_end_tokens_come_from_the_first_place_that_names_any(
    generation: Any, config: Any, tokenizer: Any, expected: set[int]
) -> None:
    network = make_network(config_of("Llama"))
    network.generation_config = Ids(generation)
    network.config.eos_token_id = config
    assert end_token_ids(network, Ids(tokenizer)) == expected


def test_the_default_model_ends_at_its_chat_token(smollm2_folder: Path) -> None:
    loaded = load_model(str(smollm2_folder), CPU, torch.float32)
    assert 2 in loaded.end_token_ids


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [("avx2 fma", torch.float32), ("avx512_bf16 avx2", torch.bfloat16), ("amx_bf16 amx_tile", torch.bfloat16)],
)
def test_auto_takes_bfloat16_only_where_the_processor_computes_it(
    flags: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags\t\t: fpu {flags}\n")
    found = device.cpu_flags(cpuinfo)
    monkeypatch.setattr(device, "cpu_flags", lambda: found)
    assert device.resolve_dtype("auto", CPU) == dtype
    assert device.resolve_dtype("float32", CPU) == torch.float32
    assert device.resolve_dtype("bfloat16", CPU) == torch.bfloat16


def test_a_system_without_cpuinfo_has_no_flags(tmp_path: Path) -> None:
    assert device.cpu_flags(tmp_path / "none") == frozenset()
