"""Models for tests: a tiny one with random weights, whose greedy text is varied and the same everywhere."""

import shutil
from pathlib import Path

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
TINY_MODEL = "tiny"  # its folder's name, so the name it is served under
SEED = 20
WEIGHT_STD = 0.3


def make_tiny_model(folder: Path, tokenizer_folder: Path, dtype: str = "float32") -> None:
    """A two-layer Llama with SmolLM2's tokenizer, chat template and end token."""
    import torch  # noqa: PLC0415  most tests do without
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=49152,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        dtype=dtype,
    )
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "norm" not in name:
                    # Far wider than usual: attention and layers then sway the choice of the next token, which else
                    # repeats one token for ever.
                    torch.nn.init.normal_(weight, std=WEIGHT_STD)
    model.to(getattr(torch, dtype))
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer_folder / name, folder / name)
