"""Tiny random models of many families, small enough to compare token by token on any machine."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from worker.models.attention_hook import HOOK

VOCAB_SIZE = 160
WINDOW = 6

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MOE = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
NO_HEAD_DIM = {key: value for key, value in SIZES.items() if key != "head_dim"}
GPT2 = {"vocab_size": VOCAB_SIZE, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}
LATENT = {
    **NO_HEAD_DIM, **MOE, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 24, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip

FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": SIZES,
    "Mistral": {**SIZES, "sliding_window": WINDOW},
    "Qwen2": SIZES,
    "Qwen3": SIZES,
    "Gemma2": {**SIZES, "sliding_window": WINDOW, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    "Gemma3Text": {**SIZES, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "Phi3": {**SIZES, "sliding_window": WINDOW},
    "Olmo2": SIZES,
    "GptOss": {**SIZES, **MOE, "sliding_window": WINDOW},
    "Mixtral": {**SIZES, **MOE},
    "DeepseekV3": LATENT,  # keys and values of different sizes
    "GPTNeoX": NO_HEAD_DIM,
    "GPT2": GPT2,  # learned positions
    "GPTBigCode": GPT2,  # one key head for all query heads
    "Cohere2": {**SIZES, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "Qwen3Moe": {**SIZES, **MOE},
}


def config_of(family: str) -> Any:
    return getattr(transformers, f"{family}Config")(**FAMILIES[family])


def make_network(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    """Random weights, large enough that answers vary; the same in every run."""
    torch.manual_seed(7)
    network = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=HOOK).eval()
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.3)
    return network


def save(network: Any, tokenizer: Any, folder: Path) -> Path:
    """Writes a model folder as a user would have one."""
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def own_greedy(network: Any, prompt: list[int], num_tokens: int) -> list[int]:
    """What transformers' own generate says, with its own attention. End tokens are not heeded."""
    network.set_attn_implementation("eager")
    try:
        output = network.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    finally:
        network.set_attn_implementation(HOOK)
    answer: list[int] = output[0, len(prompt) :].tolist()
    return answer
