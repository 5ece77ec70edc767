"""From settings to a running engine."""

import logging
from typing import Any

import torch

from worker.engine.detokenizer import detokenizer_factory
from worker.engine.device import pool_bytes, resolve_device, set_threads
from worker.engine.engine import Engine, EngineConfig
from worker.engine.grammar import grammar_maker
from worker.engine.policy import POLICIES
from worker.models.choice import load_served_model
from worker.models.refusal import positions_limit
from worker.protocol.configuration import BadSetting
from worker.settings import WorkerSettings

logger = logging.getLogger("headrace.engine")


def load_engine(settings: WorkerSettings, model_path: str) -> Engine:
    """Loads the model from a folder or hub id, tries it out and makes the KV pool.

    Raises BadSetting, ModelRefused when the model cannot be served, OSError when its files cannot be read.
    """
    if settings.policy not in POLICIES:
        raise BadSetting(f"HEADRACE_POLICY={settings.policy!r}: expected {' or '.join(POLICIES)}")
    device = resolve_device(settings.device)
    set_threads(settings.threads)
    served = load_served_model(settings, model_path, device)
    model = served.model
    max_context = _max_context(settings.max_context, served.config, served.tokenizer)
    num_pages = _num_pages(settings, model.bytes_per_page, max_context, device)
    model.allocate(num_pages)
    config = EngineConfig(
        page_size=settings.page_size,
        num_pages=num_pages,
        max_sequences=settings.max_sequences,
        step_tokens=settings.step_tokens,
        max_context=max_context,
        end_token_ids=served.end_token_ids,
        fingerprint=served.fingerprint,
        policy=settings.policy,
        prefix_cache=settings.prefix_cache,
        backfill_slowdown=settings.backfill_slowdown,
    )
    make_grammar = grammar_maker(served.tokenizer, model.vocab_size, served.end_token_ids)
    engine = Engine(model, detokenizer_factory(served.tokenizer), config, served.kernels, make_grammar)
    logger.info(
        "ready: %d KV pages of %d tokens (%.2f GiB), context of %d tokens, %s",
        num_pages, settings.page_size, num_pages * model.bytes_per_page / 2**30, engine.max_context, config.fingerprint,
    )  # fmt: skip
    return engine


def _max_context(wanted: int, model_config: Any, tokenizer: Any) -> int:
    """The longest context in tokens. A wish beyond what the model's positions allow is cut, and said so."""
    limits = (positions_limit(model_config), getattr(tokenizer, "model_max_length", None))
    possible = next((limit for limit in limits if limit is not None and limit < 10**9), None)
    if possible is None and not wanted:
        raise BadSetting("HEADRACE_MAX_CONTEXT=0: this model does not say how long its context may be; set a number")
    if possible is not None and wanted > possible:
        logger.warning("HEADRACE_MAX_CONTEXT=%d is more than the model's %d tokens, which are used", wanted, possible)
    return min(wanted or possible or 0, possible or wanted)


def _num_pages(settings: WorkerSettings, bytes_per_page: int, max_context: int, device: torch.device) -> int:
    """Pages the memory holds, but no more than all sequences together could ever fill."""
    affordable = pool_bytes(settings.kv_memory_gib, device) // bytes_per_page
    if affordable < 1:
        raise BadSetting(f"HEADRACE_KV_MEMORY_GIB={settings.kv_memory_gib}: one KV page takes {bytes_per_page} bytes")
    return int(min(affordable, settings.max_sequences * -(-max_context // settings.page_size)))
