"""The lean decoder's weights: taken from the checkpoint one layer at a time and packed into one piece of memory."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.linear import PackedLinear, PanelMemory
from worker.kernels.cpu.structures import BF16, F32, INT4, INT8
from worker.models.checkpoint import Checkpoint
from worker.models.decoder_config import DecoderConfig, NotLean

logger = logging.getLogger("headrace.engine")

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
FINAL_NORM = "model.norm.weight"
PROGRESS_S = 2.0


@dataclass(frozen=True, eq=False)
class LayerWeights:
    qkv: PackedLinear
    out: PackedLinear
    gate_up: PackedLinear
    down: PackedLinear
    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None


@dataclass(frozen=True, eq=False)
class DecoderWeights:
    layers: list[LayerWeights]
    final_norm: torch.Tensor
    head: PackedLinear
    embedding: torch.Tensor | None  # None: the head's own weights


def weight_names(config: DecoderConfig) -> frozenset[str]:
    """The tensors that the decoder reads."""
    top = {EMBEDDING, FINAL_NORM} | (set() if config.is_tied else {HEAD})
    return frozenset(top.union(*(_layer_names(config, index) for index in range(config.num_layers))))


def check_names(config: DecoderConfig, found: frozenset[str]) -> None:
    """Raises NotLean unless the checkpoint holds exactly the weights that the decoder reads."""
    wanted = weight_names(config)
    if missing := sorted(wanted - found):
        raise NotLean(f"it has no {missing[0]}")
    foreign = {name for name in found - wanted if not name.endswith("rotary_emb.inv_freq") and name != HEAD}
    if foreign:
        raise NotLean(f"it has {min(foreign)}, which is unknown to it")


class WeightPacker:
    """Packs the weights of one model. `weight_format` is that of the linear layers."""

    def __init__(self, kernels: Kernels, checkpoint: Checkpoint, config: DecoderConfig, weight_format: int) -> None:
        self._kernels = kernels
        self._checkpoint = checkpoint
        self._config = config
        self._format = weight_format
        self._memory = PanelMemory(kernels, self._layers())

    def pack(self) -> DecoderWeights:
        layers = []
        said = started = time.monotonic()
        for index in range(self._config.num_layers):
            layers.append(self._layer(index))
            if time.monotonic() - said > PROGRESS_S:
                said = time.monotonic()
                logger.info("loading: %d of %d layers, %.0f s", index + 1, self._config.num_layers, said - started)
        embedding = self._checkpoint.tensor(EMBEDDING)
        head = embedding if self._config.is_tied else self._checkpoint.tensor(HEAD)
        packed = self._pack(head, None, self._head_format)
        return DecoderWeights(layers, self._vector(FINAL_NORM), packed, self._rows(embedding))

    @property
    def _head_format(self) -> int:
        # The head decides the token, and where tied it is the embedding: four bits are too few for it.
        return INT8 if self._format == INT4 else self._format

    def _rows(self, embedding: torch.Tensor) -> torch.Tensor | None:
        """The embedding's rows in memory of their own, so that the checkpoint's can go; None: the head has them."""
        if self._config.is_tied:
            return None
        is_exact = self._format == F32 and embedding.dtype != torch.bfloat16
        return embedding.to(torch.float32 if is_exact else torch.bfloat16, copy=True).contiguous()

    def _layer(self, index: int) -> LayerWeights:
        attention, mlp = f"model.layers.{index}.self_attn", f"model.layers.{index}.mlp"
        config = self._config
        qkv = [f"{attention}.{name}_proj" for name in "qkv"]
        has_norms = config.has_head_norms
        return LayerWeights(
            qkv=self._joined(qkv, config.has_qkv_bias),
            out=self._joined([f"{attention}.o_proj"], config.has_out_bias),
            gate_up=self._gate_up(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
            down=self._joined([f"{mlp}.down_proj"], config.has_mlp_bias),
            attention_norm=self._vector(f"model.layers.{index}.input_layernorm.weight"),
            mlp_norm=self._vector(f"model.layers.{index}.post_attention_layernorm.weight"),
            query_norm=self._vector(f"{attention}.q_norm.weight") if has_norms else None,
            key_norm=self._vector(f"{attention}.k_norm.weight") if has_norms else None,
        )

    def _joined(self, names: list[str], has_bias: bool) -> PackedLinear:
        weight = torch.cat([self._matrix(f"{name}.weight") for name in names])
        bias = torch.cat([self._vector(f"{name}.bias") for name in names]) if has_bias else None
        return self._pack(weight, bias, self._format)

    def _gate_up(self, gate: str, up: str) -> PackedLinear:
        weight = self._interleaved(self._matrix(f"{gate}.weight"), self._matrix(f"{up}.weight"))
        has_bias = self._config.has_mlp_bias
        bias = self._interleaved(self._vector(f"{gate}.bias"), self._vector(f"{up}.bias")) if has_bias else None
        return self._pack(weight, bias, self._format)

    def _interleaved(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """A panel of gate's rows, one of up's, and so on; zero rows fill the last ones."""
        width = self._kernels.panel_width
        missing = self._kernels.padded(len(gate)) - len(gate)
        panels = [torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) for rows in (gate, up)]
        return torch.stack([rows.view(-1, width, *rows.shape[1:]) for rows in panels], dim=1).flatten(0, 2)

    def _pack(self, weight: torch.Tensor, bias: torch.Tensor | None, wanted: int) -> PackedLinear:
        return self._memory.pack(weight, bias, wanted)

    def _matrix(self, name: str) -> torch.Tensor:
        return _readable(self._checkpoint.tensor(name))

    def _vector(self, name: str) -> torch.Tensor:
        return self._checkpoint.tensor(name).to(torch.float32, copy=True)

    def _layers(self) -> Iterator[tuple[int, int, int]]:
        """The format, in_size and out_size of all packed layers."""
        config, padded = self._config, self._kernels.padded
        heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_size
        shapes = [
            (config.hidden_size, heads),
            (config.num_heads * config.head_size, config.hidden_size),
            (config.hidden_size, 2 * padded(config.intermediate_size)),
            (config.intermediate_size, config.hidden_size),
        ] * config.num_layers
        for in_size, out_size in shapes:
            yield self._format, in_size, out_size
        yield self._head_format, config.hidden_size, config.vocab_size


def linear_format(dtype: torch.dtype, quantization: str) -> int:
    """The weight format of linear layers for a dtype and a quantization: none, int8 or int4."""
    return {"none": F32 if dtype == torch.float32 else BF16, "int8": INT8, "int4": INT4}[quantization]


def _layer_names(config: DecoderConfig, index: int) -> set[str]:
    biased = {"q": config.has_qkv_bias, "k": config.has_qkv_bias, "v": config.has_qkv_bias, "o": config.has_out_bias}
    linears = {f"self_attn.{name}_proj": has_bias for name, has_bias in biased.items()}
    linears |= {f"mlp.{name}_proj": config.has_mlp_bias for name in ("gate", "up", "down")}
    names = {f"{name}.weight" for name in linears} | {f"{name}.bias" for name, has_bias in linears.items() if has_bias}
    names |= {"input_layernorm.weight", "post_attention_layernorm.weight"}
    if config.has_head_norms:
        names |= {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}
    return {f"model.layers.{index}.{name}" for name in names}


def _readable(weight: torch.Tensor) -> torch.Tensor:
    """`weight` in a type that the packing reads."""
    return weight if weight.dtype in (torch.float32, torch.bfloat16) else weight.float()
