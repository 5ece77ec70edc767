"""What a model's folder holds beside its weights, read without transformers' networks, which take seconds to load."""

from typing import Any

from transformers import AutoTokenizer, GenerationConfig

from worker.models.refusal import ModelRefused


def load_tokenizer(path: str) -> Any:
    """The tokenizer of a folder or hub id. Raises ModelRefused when it has no fast form."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ModelRefused(f"{path} has no tokenizer.json and its tokenizer cannot be converted to one")
    return tokenizer


def load_generation_config(path: str) -> GenerationConfig | None:
    """The generation config of a folder or hub id, where it has one."""
    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:
        return None


def end_ids(generation_config: GenerationConfig | None, config: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer: the first of generation config, config and tokenizer that names any."""
    for source in (generation_config, config.get_text_config(decoder=True), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None and ids != []:
            return frozenset(ids if isinstance(ids, list) else [ids])
    return frozenset()
