"""Which model computes: the lean decoder where it can, else the generic path over transformers' own network."""

import logging
import time
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig

from worker.engine.device import DTYPES, resolve_dtype
from worker.kernels.cpu.library import Kernels
from worker.kernels.dispatch import UnknownKernels, cpu_kernels
from worker.models.alone import compute_alone
from worker.models.beside_weights import end_ids, load_generation_config, load_tokenizer
from worker.models.checkpoint import Checkpoint, NoSafetensors
from worker.models.decoder import LeanDecoder, PageFormat, RopeTable
from worker.models.decoder_config import DecoderConfig, NotLean, decoder_config, rotary_frequencies
from worker.models.decoder_weights import EMBEDDING, WeightPacker, check_names, linear_format, weight_names
from worker.models.refusal import ModelRefused
from worker.models.served import ServedModel, fingerprint
from worker.protocol.configuration import BadSetting
from worker.settings import WorkerSettings

logger = logging.getLogger("headrace.engine")

QUANTIZATIONS = ("none", "int8", "int4")
DTYPE_OF = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float32}
NUMERICS = 2  # goes up when the lean path's arithmetic changes


def load_served_model(settings: WorkerSettings, path: str, device: torch.device) -> ServedModel:
    """Loads the model from a folder or hub id.

    Raises BadSetting, ModelRefused when the model cannot be served, OSError when its files cannot be read or fetched.
    """
    if settings.quantization not in QUANTIZATIONS:
        raise BadSetting(f"HEADRACE_QUANTIZATION={settings.quantization!r}: expected {', '.join(QUANTIZATIONS)}")
    compute_alone()
    resolve_dtype(settings.dtype, device)  # refused at once, whichever path it will be
    kernels = _kernels(settings) if device.type == "cpu" else None
    try:
        return _load(settings, path, device, kernels)
    except (BadSetting, ModelRefused):
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, StrictDataclassError) as error:
        # What the libraries make of broken files, and, without an error number, of files that a folder lacks.
        if isinstance(error, OSError) and (error.errno is not None or not Path(path).is_dir()):
            raise
        logger.debug("the model cannot be loaded", exc_info=True)
        reason = str(error).strip().partition("\n")[0]
        raise ModelRefused(f"{path} cannot be loaded: {type(error).__name__}: {reason}") from error


def _load(settings: WorkerSettings, path: str, device: torch.device, kernels: Kernels | None) -> ServedModel:
    if kernels is None:
        reason = "it needs our CPU kernels"
    else:
        try:
            return _load_lean(settings, path, kernels)
        except (NotLean, NoSafetensors) as error:
            reason = str(error)
    logger.info("the lean decoder does not compute this model: %s", reason)
    from worker.models.over_transformers import load_generic  # noqa: PLC0415  transformers' networks load for seconds

    return load_generic(settings, path, device, kernels, reason)


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
        fingerprint(f"lean{NUMERICS}-{kernels.isa}", dtype, settings.quantization, _hash(checkpoint, shape)),
        kernels,
    )


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
