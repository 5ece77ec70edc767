"""The generic path: transformers' own network, over our CPU kernels or over torch."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import AutoConfig

from worker.engine.device import DTYPES, instruction_set, resolve_dtype
from worker.kernels.cpu.library import Kernels
from worker.kernels.interface import UnservedLayout
from worker.models.generic import GenericModel
from worker.models.loader import LoadedModel, load_model, weights_hash
from worker.models.packing import Precision, packed_model
from worker.models.refusal import ModelFails, ModelRefused
from worker.models.served import ServedModel, fingerprint
from worker.protocol.configuration import BadSetting
from worker.settings import WorkerSettings

logger = logging.getLogger("headrace.engine")

GENERIC_NUMERICS = 3  # goes up when the arithmetic over our kernels changes
CPU = torch.device("cpu")


class NotPacked(Exception):
    """Our kernels do not compute this model on the generic path; the message says why."""


def load_generic(
    settings: WorkerSettings, path: str, device: torch.device, kernels: Kernels | None, why_not_lean: str
) -> ServedModel:
    """Over our kernels where there are any and they compute the model. Raises as load_served_model does."""
    reason = why_not_lean
    if kernels is not None:
        try:
            return load_packed(settings, path, kernels)
        except (NotPacked, UnservedLayout, ModelFails) as error:
            reason = str(error)
            logger.info("nor do our kernels: %s", reason)
    if settings.quantization != "none":
        raise BadSetting(f"HEADRACE_QUANTIZATION={settings.quantization}: not with this model: {reason}")
    return _load_on_torch(settings, path, device, resolve_dtype(settings.dtype, device))


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
    own = fingerprint(arithmetic, precision.dtype, precision.quantization, weights_hash(loaded.network))
    with _named(path, loaded):
        model = packed_model(loaded.network, kernels, settings.page_size, precision)
    return ServedModel(model, loaded.network.config, loaded.tokenizer, loaded.end_token_ids, own, kernels)


def _load_on_torch(settings: WorkerSettings, path: str, device: torch.device, dtype: torch.dtype) -> ServedModel:
    loaded = load_model(path, device, dtype)
    with _named(path, loaded):
        model = GenericModel(loaded.network, settings.page_size)
    quantization = getattr(loaded.network.config, "quantization_config", None)
    method = "none" if quantization is None else str(getattr(quantization, "quant_method", "unknown"))
    own = fingerprint(instruction_set(device), dtype, method, weights_hash(loaded.network))
    return ServedModel(model, loaded.network.config, loaded.tokenizer, loaded.end_token_ids, own)


@contextmanager
def _named(path: str, loaded: LoadedModel) -> Iterator[None]:
    """A refusal from within tells which model is refused."""
    try:
        yield
    except ModelRefused as error:
        raise type(error)(f"{path} ({type(loaded.network).__name__}) cannot be served: {error}") from error
