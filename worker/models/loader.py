"""Loads a model folder or hub id: the network with our attention hook, its tokenizer and what goes with them."""

import hashlib
import logging
import time
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from worker.models.attention_hook import HOOK
from worker.models.beside_weights import end_ids, load_tokenizer
from worker.models.refusal import ModelRefused, check_config

logger = logging.getLogger("headrace.engine")
NUM_SAMPLED_VALUES = 64


@dataclass(frozen=True)
class LoadedModel:
    network: Any  # transformers PreTrainedModel
    tokenizer: Any  # transformers tokenizer with a tokenizers backend
    end_token_ids: frozenset[int]


def load_model(path: str, device: torch.device, dtype: torch.dtype | None) -> LoadedModel:
    """Reads everything from a folder or hub id; weights in the type they are stored in where `dtype` is absent.

    Raises ModelRefused or OSError.
    """
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    started = time.monotonic()
    config = AutoConfig.from_pretrained(path)
    check_config(path, config, _model_class(path, config))
    placement = {} if device.type == "cpu" else {"device_map": {"": device}}
    network = AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype or "auto", attn_implementation=HOOK, **placement
    ).eval()
    tokenizer = load_tokenizer(path)
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    logger.info(
        "loaded %s: %s, %.2f billion parameters, %s on %s, %.1f s",
        path, type(network).__name__, num_parameters / 1e9, network.dtype, device, time.monotonic() - started,
    )  # fmt: skip
    return LoadedModel(network, tokenizer, end_token_ids(network, tokenizer))


def end_token_ids(network: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer of this network."""
    return end_ids(getattr(network, "generation_config", None), network.config, tokenizer)


def weights_hash(network: Any) -> str:
    """16 hex digits from every weight's name, type, shape and a sample of its values: tells fine-tunes apart."""
    digest = hashlib.sha256()
    for name, weight in sorted(network.state_dict().items()):
        flat = weight.reshape(-1)
        sample = flat[:: max(1, flat.numel() // NUM_SAMPLED_VALUES)][:NUM_SAMPLED_VALUES].to("cpu", copy=True)
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(sample.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _model_class(path: str, config: Any) -> Any:
    try:
        model_class = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        raise ModelRefused(f"{path} is of type {config.model_type}, which is no causal language model") from None
    return model_class[0] if isinstance(model_class, list | tuple) else model_class
