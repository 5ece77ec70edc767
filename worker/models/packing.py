"""Puts our CPU kernels into a transformers network: its linear layers, norms, experts and embeddings.

Weights go into packed panels one after another, and the network's own are let go of: one copy is in memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from worker.kernels.cpu.attention import NativeAttention
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.linear import PackedLinear, PanelMemory
from worker.kernels.cpu.structures import BF16, F32, INT4, INT8
from worker.models.generic import GenericModel
from worker.models.packed_modules import (
    ExpertsModule,
    LinearModule,
    NormModule,
    StoredRows,
    keep_rows_as_stored,
    take_rows_of,
)

FORMATS = {"int8": INT8, "int4": INT4}
SMALLEST_QUANTIZED = 64  # rows and columns; fewer decide much and weigh little: routers, gates of experts


@dataclass(frozen=True)
class Precision:
    """How weights are kept: bfloat16 or float32, where not quantized (none, int8, int4)."""

    dtype: torch.dtype
    quantization: str


def packed_model(network: Any, kernels: Kernels, page_size: int, precision: Precision) -> GenericModel:
    """The network over our kernels; it is used up. Raises ModelRefused and UnservedLayout."""
    NetworkPacker(network, kernels, precision).pack()
    model = GenericModel(network, page_size, NativeAttention(kernels, page_size), precision.dtype)
    _give_back_what_was_read(network)
    return model


class NetworkPacker:
    """Packs one network, in place."""

    def __init__(self, network: Any, kernels: Kernels, precision: Precision) -> None:
        self._network = network
        self._kernels = kernels
        self._plain = F32 if precision.dtype == torch.float32 else BF16
        self._wanted = FORMATS.get(precision.quantization, self._plain)
        self._head = network.get_output_embeddings()
        self._packed: dict[tuple[int, int], PackedLinear] = {}  # by the ids of weight and bias, which some share
        self._rows: dict[int, PackedLinear] = {}  # by the id of the weight
        self._memory = PanelMemory(kernels, self._layers())

    @torch.no_grad()
    def pack(self) -> None:
        for place in list(_places(self._network, _is_linear)):
            place.put(self._linear(place.module))
        for place in list(_places(self._network, _is_experts)):
            place.put(self._experts(place.module))
        for module in list(self._network.modules()):
            if isinstance(module, nn.Embedding) and module.max_norm is None:
                self._embedding(module)
        for place in list(_places(self._network, _is_norm)):
            if norm := fused_norm(place.module, self._kernels):
                place.put(norm)
        _to_float32(self._network)

    def _layers(self) -> Iterator[tuple[int, int, int]]:
        seen = set()
        for module in self._network.modules():
            if _is_linear(module) and _key(module) not in seen:
                seen.add(_key(module))
                matrix = _matrix(module)
                yield self._format(module, matrix), matrix.shape[1], matrix.shape[0]
            if _is_experts(module):
                for matrix in (matrix for side in _expert_sides(module) for matrix in side):
                    yield self._format(module, matrix), matrix.shape[1], matrix.shape[0]

    def _format(self, module: nn.Module, matrix: torch.Tensor) -> int:
        if min(matrix.shape) < SMALLEST_QUANTIZED:
            return self._plain
        # The head decides the token: four bits are too few for it.
        return INT8 if self._wanted == INT4 and module is self._head else self._wanted

    def _linear(self, module: Any) -> LinearModule:
        key = _key(module)
        if key not in self._packed:
            matrix = _matrix(module)
            self._packed[key] = self._memory.pack(matrix, module.bias, self._format(module, matrix))
            self._rows[id(module.weight)] = self._packed[key]
        return LinearModule(self._packed[key])

    def _experts(self, module: Any) -> ExpertsModule:
        biases = [getattr(module, f"{name}_bias", None) for name in _expert_names(module)]
        ups, downs = (
            [
                self._memory.pack(matrix, None if bias is None else bias[expert], self._format(module, matrix))
                for expert, matrix in enumerate(side)
            ]
            for side, bias in zip(_expert_sides(module), biases, strict=True)
        )
        for name in _expert_names(module):
            del module._parameters[name]
        return ExpertsModule(module, ups, downs)

    def _embedding(self, module: nn.Embedding) -> None:
        if packed := self._rows.get(id(module.weight)):
            take_rows_of(module, packed)
        elif module.weight.dtype == torch.bfloat16:
            keep_rows_as_stored(module)


@dataclass(frozen=True)
class Place:
    """Where a module hangs in a network."""

    parent: nn.Module
    name: str
    module: Any

    def put(self, module: nn.Module) -> None:
        setattr(self.parent, self.name, module)


def fused_norm(module: Any, kernels: Kernels) -> NormModule | None:
    """What stands for this norm, or None where no fused one computes the same."""
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(epsilon, float):
        return None
    weight = module.weight.float()
    x = torch.randn(2, 3, len(weight), generator=torch.Generator().manual_seed(1))
    x[1] *= epsilon**0.5  # here the epsilon shows
    expected = module(x).float()
    for factors in (weight, 1.0 + weight):
        norm = NormModule(kernels, weight, factors, epsilon)
        if torch.allclose(norm(x), expected, rtol=1e-4, atol=1e-6):
            return norm
    return None


def _give_back_what_was_read(network: Any) -> None:
    """A weight that was read in the probe, by others than its module, would be unpacked in every step."""
    for place in list(_places(network, lambda module: isinstance(module, LinearModule))):
        if place.module.is_weight_read:
            place.put(place.module.dense())


def _places(network: nn.Module, is_wanted: Callable[[Any], bool]) -> Iterator[Place]:
    for parent in network.modules():
        for name, module in parent.named_children():
            if is_wanted(module):
                yield Place(parent, name, module)


def _is_linear(module: Any) -> bool:
    return type(module) in (nn.Linear, Conv1D)  # a subclass may compute something else


def _is_norm(module: Any) -> bool:
    names = [name for name, _ in module.named_parameters()]
    return "RMSNorm" in type(module).__name__ and names == ["weight"] and module.weight.dim() == 1


def _is_experts(module: Any) -> bool:
    """Whether transformers' common interface of experts runs this module, so that its weights lie as we know."""
    flags = ("_apply_gate", "has_gate", "has_bias", "is_transposed")
    is_common = all(hasattr(module, flag) for flag in flags) and not getattr(module, "has_post_expert_norm", False)
    return is_common and all(
        isinstance(getattr(module, name, None), nn.Parameter) and getattr(module, name).dim() == 3
        for name in _expert_names(module)
    )


def _expert_names(module: Any) -> tuple[str, str]:
    return ("gate_up_proj" if module.has_gate else "up_proj", "down_proj")


def _expert_sides(module: Any) -> Iterator[torch.Tensor]:
    """The up and the down weights, [experts, out, in]."""
    for name in _expert_names(module):
        weights = getattr(module, name).data
        yield weights.transpose(1, 2) if module.is_transposed else weights


def _key(module: Any) -> tuple[int, int]:
    return id(module.weight), id(module.bias)


def _matrix(module: Any) -> torch.Tensor:
    """[out, in]."""
    weight: torch.Tensor = module.weight.data
    return weight.t() if isinstance(module, Conv1D) else weight


def _to_float32(network: nn.Module) -> None:
    """What is left: activations are float32, and so is all that meets them."""
    for module in network.modules():
        if isinstance(module, StoredRows):
            continue
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            if tensor.is_floating_point():
                tensor.data = tensor.data.float()
