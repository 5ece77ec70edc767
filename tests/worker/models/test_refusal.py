"""Models that cannot be served are refused by name, with the reason, before they answer anything."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.worker.models.families import SIZES, config_of, make_network
from worker.models.generic import GenericModel
from worker.models.loader import load_model
from worker.models.refusal import ModelRefused, positions_limit

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("Mamba", {}, r"MambaForCausalLM\) keeps a recurrent state"),
        ("Mamba2", {}, r"Mamba2ForCausalLM\) keeps a recurrent state"),
        ("Rwkv", {}, r"RwkvForCausalLM\) keeps a recurrent state"),
        ("RecurrentGemma", {}, r"RecurrentGemmaForCausalLM\) keeps a recurrent state"),
        ("Jamba", {}, r"JambaForCausalLM\) keeps a recurrent state"),
        ("Qwen3Next", {}, r"Qwen3NextForCausalLM\) keeps a recurrent state"),
        ("Lfm2", {"full_attn_idxs": [2]}, r"Lfm2ForCausalLM\) has layers of the kind conv"),
        ("MiniMax", {}, r"MiniMaxForCausalLM\) has layers of the kind linear_attention"),
        ("Llama4Text", {}, r"Llama4ForCausalLM\) has layers of the kind chunked_attention"),
        ("T5", {}, "of type t5, which is no causal language model"),
        ("Whisper", {}, r"WhisperForCausalLM\) reads an encoder"),
        ("Bart", {}, r"BartForCausalLM\) reads an encoder"),
        ("Bloom", {}, r"BloomForCausalLM\) does not let its attention be exchanged"),
        ("Mpt", {}, r"MptForCausalLM\) does not let its attention be exchanged"),
    ],
)
def test_a_foreign_model_is_refused_by_name_before_its_weights_are_read(
    family: str, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    getattr(transformers, f"{family}Config")(**changes).save_pretrained(tmp_path)
    with pytest.raises(ModelRefused, match=reason) as refused:
        load_model(str(tmp_path), CPU, torch.float32)
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("Bert", {}, "its attention also looks ahead"),
        ("Doge", {}, "its attention depends on attention_mask, which is not served"),
        ("Phimoe", {"sliding_window": 6}, "its sliding windows do not reach the attention function"),
    ],
)
def test_a_model_whose_attention_asks_for_what_is_not_served_is_refused(
    family: str, changes: dict[str, Any], reason: str
) -> None:
    network = make_network(getattr(transformers, f"{family}Config")(**{**SIZES, **changes}))
    with pytest.raises(ModelRefused, match=reason):
        GenericModel(network, page_size=4)


def shift_tokens(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
    """A state that no configuration tells of: each token takes in a part of the one before it."""
    before = torch.cat([torch.zeros_like(output[:, :1]), output[:, :-1]], dim=1)
    return output + before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hidden_state_between_tokens_is_found_out(dtype: torch.dtype) -> None:
    network = make_network(config_of("Llama"), dtype)
    GenericModel(network, page_size=4)
    network.model.layers[0].mlp.register_forward_hook(shift_tokens)
    with pytest.raises(ModelRefused, match="it keeps state outside its attention"):
        GenericModel(network, page_size=4)


def test_a_model_that_fails_when_tried_is_refused_with_its_own_words() -> None:
    network = make_network(config_of("Llama"))

    def fail(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    network.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(ModelRefused, match="it fails when tried: RuntimeError: no such kernel"):
        GenericModel(network, page_size=4)


def test_a_model_with_broken_weights_is_refused() -> None:
    network = make_network(config_of("Llama"))
    network.model.norm.weight.data.fill_(torch.nan)
    with pytest.raises(ModelRefused, match="logits change by nan"):
        GenericModel(network, page_size=4)


def test_a_model_whose_layers_bypass_the_exchanged_attention_is_refused() -> None:
    network = make_network(config_of("Llama"))
    network.set_attn_implementation("eager")
    with pytest.raises(ModelRefused, match="its layers never call the exchanged attention"):
        GenericModel(network, page_size=4)


LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("family", "changes", "limit"),
    [
        ("Llama", {}, 256),
        ("GPT2", {"n_positions": 77}, 77),
        ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, 256),
        ("Phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64}, 64),
        (
            "Gemma3Text",
            {"rope_parameters": {"full_attention": LONGROPE, "sliding_attention": {"rope_type": "default"}}},
            64,
        ),
    ],
)
def test_rotary_embeddings_that_change_with_a_batch_limit_the_context(
    family: str, changes: dict[str, Any], limit: int
) -> None:
    config = config_of(family)
    for name, value in changes.items():
        setattr(config, name, value)
    assert positions_limit(config) == limit
