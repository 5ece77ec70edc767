"""The model as the API knows it: its name, limits and tokenizer, without its weights."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file

from api.pipeline.answer_plan import AnswerStyle, answer_style
from api.pipeline.native_pool import NativePool
from api.pipeline.tokenizer import ModelTokenizer
from api.settings import ApiSettings
from worker.protocol.configuration import BadSetting
from worker.protocol.model_identity import resolve_model

CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length")


@dataclass(frozen=True)
class ServedModel:
    name: str  # what clients send as `model`, and the pool of its jobs
    path: str  # folder or hub id
    created_s: int  # Unix time
    max_context: int  # tokens of prompt and answer together
    vocab_size: int  # every token id is below it
    tokenizer: ModelTokenizer
    style: AnswerStyle
    aliases: tuple[str, ...] = ()  # other names under which clients may ask for it

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


def load_served_model(settings: ApiSettings) -> ServedModel:
    """Raises ModelNotPrepared, TokenizerNotUsableError, OSError when files cannot be fetched, or BadSetting."""
    path, name = resolve_model(settings.model, settings.model_name)
    config_file = _config_file(path)
    try:
        config = json.loads(config_file.read_text())
    except ValueError as error:
        raise BadSetting(f"HEADRACE_MODEL={path!r}: its config.json cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise BadSetting(f"HEADRACE_MODEL={path!r}: its config.json holds no object")
    text_config = config.get("text_config") or config
    tokenizer = ModelTokenizer.load(path, NativePool(settings.tokenizer_threads))
    vocab_size = text_config.get("vocab_size") or tokenizer.vocab_size
    return ServedModel(
        name=name,
        path=path,
        created_s=int(os.stat(config_file).st_mtime),
        max_context=_max_context(settings.max_context, text_config, tokenizer),
        vocab_size=vocab_size,
        tokenizer=tokenizer,
        style=answer_style(tokenizer, vocab_size),
        aliases=_aliases(settings.model_aliases, name),
    )


def _aliases(text: str, name: str) -> tuple[str, ...]:
    names = dict.fromkeys(alias for part in text.split(",") if (alias := part.strip()))
    return tuple(alias for alias in names if alias != name)


def _config_file(path: str) -> Path:
    try:
        found = cached_file(path, "config.json")
    except OSError as error:
        told = f"HEADRACE_MODEL={path!r}: no config.json: {error}"
        raise (BadSetting(told) if Path(path).is_dir() else OSError(told)) from error
    if found is None:
        raise BadSetting(f"HEADRACE_MODEL={path!r}: no config.json")
    return Path(found)


def _max_context(wanted: int, config: dict[str, Any], tokenizer: ModelTokenizer) -> int:
    """What was set, cut as the worker cuts it to what the weights were made for.

    The tokenizer's word counts only where the configuration says nothing.
    """
    declared = [config[key] for key in CONTEXT_KEYS if isinstance(config.get(key), int)]
    longest = declared[0] if declared else tokenizer.max_length
    if longest is None and not wanted:
        raise BadSetting("HEADRACE_MAX_CONTEXT: the model does not say how long its context is; set it")
    return min(wanted or longest or 0, longest or wanted)
