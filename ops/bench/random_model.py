"""``python -m ops.bench.random_model FOLDER TOKENIZER_FOLDER``: half a billion random weights in Qwen2.5-0.5B's shape.

For speed alone: the text is noise. The tokenizer, and with it the vocabulary, are the default model's.
"""

import shutil
import sys
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from ops.bench.bench_model import NO_TOKEN_ID, TOKENIZER_FILES

SEED = 0


def make(folder: Path, tokenizer_folder: Path) -> None:
    torch.manual_seed(SEED)
    config = Qwen2Config(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=49152,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=NO_TOKEN_ID, pad_token_id=2)
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer_folder / name, folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
