"""From the default model's GGUF file to a folder that transformers and tokenizers load.

The format keeps less than the original: the digit splitter in front of the tokenizer's merges and the longest context
are lost on the way and put back here. What the model needs to be itself is checked before the folder is used.
"""

from pathlib import Path

import torch
import transformers
from tokenizers import pre_tokenizers

from worker.protocol.model_identity import ModelNotPrepared

LONGEST_CONTEXT = 8192
EOS_TOKEN = "<|im_end|>"
EOS_TOKEN_ID = 2
# Texts and their ids under the original tokenizer; the first two go wrong without the digit splitter.
KNOWN_TOKEN_IDS: dict[str, list[int]] = {
    "x  12": [104, 256, 33, 34],
    "1234567890": [33, 34, 35, 36, 37, 38, 39, 40, 41, 32],
    "Hello, world!": [19556, 28, 905, 17],
    "<|im_start|>user\nHi<|im_end|>\n": [1, 4093, 198, 26843, 2, 198],
    "日本語 🙂": [23274, 115, 40993, 179, 120, 248, 47526],
    " the  quick\t\n\nbrown'll": [260, 216, 2365, 197, 198, 198, 22216, 3060],
    "<|endoftext|>": [0],
}
KNOWN_CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
)


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write weights (bf16 safetensors), tokenizer and configurations. Raises ModelNotPrepared when a check fails."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=model.config.bos_token_id, eos_token_id=EOS_TOKEN_ID, pad_token_id=model.config.pad_token_id
    )
    model.save_pretrained(folder)
    _tokenizer(gguf).save_pretrained(folder)
    check_tokenizer(folder)


def _tokenizer(gguf: Path) -> transformers.PreTrainedTokenizerFast:
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.model_max_length = LONGEST_CONTEXT
    return tokenizer


def check_tokenizer(folder: Path) -> None:
    """Whether token ids, chat template and end token are the original's. Raises ModelNotPrepared."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text, token_ids in KNOWN_TOKEN_IDS.items():
        if (found := tokenizer(text).input_ids) != token_ids:
            raise ModelNotPrepared(f"the tokenizer makes {found} of {text!r}, rightly {token_ids}")
        if (back := tokenizer.decode(token_ids)) != text:
            raise ModelNotPrepared(f"the tokenizer turns {token_ids} into {back!r}, rightly {text!r}")
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    if chat != KNOWN_CHAT:
        raise ModelNotPrepared(f"the chat template makes {chat!r}, rightly {KNOWN_CHAT!r}")
    if (tokenizer.eos_token, tokenizer.eos_token_id) != (EOS_TOKEN, EOS_TOKEN_ID):
        raise ModelNotPrepared(f"the end token is {tokenizer.eos_token!r}, rightly {EOS_TOKEN!r}")
