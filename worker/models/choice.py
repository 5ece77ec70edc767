"""Which model computes: the lean decoder where it can, else the generic path over transformers' own network."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig

from worker.engine.device import DTYPES, instruction_set, resolve_dtype
from worker.kernels.cpu.library import Kernels
from worker.kernels.dispatch import UnknownKernels, cpu_kernels
from worker.kernels.interface import UnservedLayout
from worker.models.checkpoint import Checkpoint, NoSafetensors
from worker.models.decoder import LeanDecoder, PageFormat, RopeTable
from worker.models.decoder_config import DecoderConfig, NotLean, decoder_config, rotary_frequencies
from worker.models.decoder_weights import EMBEDDING, WeightPacker, check_names, linear_format, weight_names
from worker.models.generic import GenericModel
from worker.models.loader import (
    LoadedModel,
    end_ids,
    load_generation_config,
    load_model,
    load_tokenizer,
    weights_hash,
)
from worker.models.packing import Precision, packed_model
from worker.models.refusal import ModelFails, ModelRefused
from worker.protocol.configuration import BadSetting
from worker.settings import WorkerSettings

logger = logging.getLogger("headrace.engine")

QUANTIZATIONS = ("none", "int8", "int4")
DTYPE_OF = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float32}
NUMERICS = 2  # of the lean path; goes up when its arithmetic changes
GENERIC_NUMERICS = 3  # of the generic path over our kernels
CPU = torch.device("cpu")


class NotPacked(Exception):
    """Our kernels do not compute this model on the generic path; the message says why."""


@dataclass(frozen=True)
class ServedModel:
    """A model and what the engine must know beside it."""

    model: LeanDecoder | GenericModel
    config: Any  # transformers' own
    tokenizer: Any
    end_token_ids: frozenset[int]
    fingerprint: str  # workers with the same one compute the same numbers
    kernels: Kernels | None = None  # those the model computes with


def load_served_model(settings: WorkerSettings, path: str, device: torch.device) -> ServedModel:
    """Loads the model from a folder or hub id.

    Raises BadSetting, ModelRefused when the model cannot be served, OSError when its files cannot be read.
    """
    if settings.quantization not in QUANTIZATIONS:
        raise BadSetting(f"HEADRACE_QUANTIZATION={settings.quantization!r}: expected {', '.join(QUANTIZATIONS)}")
    torch_dtype = resolve_dtype(settings.dtype, device)
    kernels = _kernels(settings) if device.type == "cpu" else None
    if kernels is None:
        reason = "it needs our CPU kernels"
    else:
        try:
            return _load_lean(settings, path, kernels)
        except (NotLean, NoSafetensors) as error:
            reason = str(error)
    logger.info("the lean decoder does not compute this model: %s", reason)
    if kernels is not None:
        try:
            return load_packed(settings, path, kernels)
        except (NotPacked, UnservedLayout, ModelFails) as error:
            reason = str(error)
            logger.info("nor do our kernels: %s", reason)
    if settings.quantization != "none":
        raise BadSetting(f"HEADRACE_QUANTIZATION={settings.quantization}: not with this model: {reason}")
    return _load_on_torch(settings, path, device, torch_dtype)


def _load_lean(settings: WorkerSettings, path: str, kernels: Kernels) -> ServedModel:
    started = time.monotonic()
    config = AutoConfig.from_pretrained(path)
    shape, rope = decoder_config(config), RopeTable(*rotary_frequencies(config))
    checkpoint = Checkpoint(path)
    check_names(shape, checkpoint.names)
    dtype = _lean_dtype(settings.dtype, checkpoint)
    weights = WeightPacker(kernels, checkpoint, shape, linear_format(dtype, settings.quantization)).pack()
    model = LeanDecoder(kernels, shape, weights, rope, PageFormat(settings.page_size, dtype))
    tokenizer = load_tokenizer(path)
    logger.info(
        "loaded %s: lean decoder of %d layers, %s, weights %s, %.1f s",
        path, shape.num_layers, dtype, settings.quantization, time.monotonic() - started,
    )  # fmt: skip
    return ServedModel(
        model,
        config,
        tokenizer,
        end_ids(load_generation_config(path), config, tokenizer),
        _fingerprint(f"lean{NUMERICS}-{kernels.isa}", dtype, settings.quantization, _hash(checkpoint, shape)),
        kernels,
    )


def load_packed(settings: WorkerSettings, path: str, kernels: Kernels) -> ServedModel:
    """The generic path over our CPU kernels.

    Raises NotPacked, UnservedLayout or ModelFails when plain torch may still serve the model, else as
    load_served_model does.
    """
    if getattr(AutoConfig.from_pretrained(path), "quantization_config", None) is not None:
        raise NotPacked("its weights are quantized")
    loaded = load_model(path, CPU, torch.float32 if settings.dtype == "float32" else None)
    stored = torch.bfloat16 if loaded.network.dtype == torch.bfloat16 else torch.float32
    precision = Precision(DTYPES.get(settings.dtype, stored), settings.quantization)
    arithmetic = f"generic{GENERIC_NUMERICS}-{kernels.isa}-{instruction_set(CPU)}"
    fingerprint = _fingerprint(arithmetic, precision.dtype, precision.quantization, weights_hash(loaded.network))
    with _named(path, loaded):
        model = packed_model(loaded.network, kernels, settings.page_size, precision)
    return ServedModel(model, loaded.network.config, loaded.tokenizer, loaded.end_token_ids, fingerprint, kernels)


def _load_on_torch(settings: WorkerSettings, path: str, device: torch.device, dtype: torch.dtype) -> ServedModel:
    loaded = load_model(path, device, dtype)
    with _named(path, loaded):
        model = GenericModel(loaded.network, settings.page_size)
    quantization = getattr(loaded.network.config, "quantization_config", None)
    method = "none" if quantization is None else str(getattr(quantization, "quant_method", "unknown"))
    fingerprint = _fingerprint(instruction_set(device), dtype, method, weights_hash(loaded.network))
    return ServedModel(model, loaded.network.config, loaded.tokenizer, loaded.end_token_ids, fingerprint)


@contextmanager
def _named(path: str, loaded: LoadedModel) -> Iterator[None]:
    """A refusal from within tells which model is refused."""
    try:
        yield
    except ModelRefused as error:
        raise type(error)(f"{path} ({type(loaded.network).__name__}) cannot be served: {error}") from error


def _kernels(settings: WorkerSettings) -> Kernels | None:
    try:
        return cpu_kernels(settings.cpu_kernels, settings.threads)
    except UnknownKernels as error:
        raise BadSetting(f"HEADRACE_CPU_KERNELS={settings.cpu_kernels!r}: {error}") from error


def _lean_dtype(name: str, checkpoint: Checkpoint) -> torch.dtype:
    stored = checkpoint.dtype(EMBEDDING)
    if stored not in DTYPE_OF:
        raise NotLean(f"its weights are stored as {stored}")
    return DTYPE_OF[stored] if name == "auto" else DTYPES[name]


def _hash(checkpoint: Checkpoint, shape: DecoderConfig) -> str:
    return checkpoint.hash(weight_names(shape))


def _fingerprint(arithmetic: str, dtype: torch.dtype, quantization: str, weights: str) -> str:
    """Arithmetic, dtype, quantization, shards, weights."""
    return "/".join((arithmetic, str(dtype).removeprefix("torch."), quantization, "tp1", weights))
