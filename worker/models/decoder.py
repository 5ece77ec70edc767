"""The lean model: a Llama-like decoder whose whole pass is one call of the CPU kernels."""

import ctypes
from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass

import torch

from worker.engine.ragged_batch import RaggedBatch
from worker.kernels.cpu.attention import PageShape, key_bytes, value_bytes
from worker.kernels.cpu.library import Kernels, native_batch
from worker.kernels.cpu.linear import huge_memory
from worker.kernels.cpu.structures import FORMATS, Decoder, Layer, Pages
from worker.models.decoder_config import DecoderConfig
from worker.models.decoder_weights import DecoderWeights, LayerWeights

FIRST_POSITIONS = 1024


class LeanDecoder:
    """See Model. Call `allocate` once before the first forward pass."""

    device = torch.device("cpu")

    def __init__(
        self, kernels: Kernels, config: DecoderConfig, weights: DecoderWeights, rope: "RopeTable", page: "PageFormat"
    ) -> None:
        self.vocab_size = config.vocab_size
        self._kernels = kernels
        self._config = config
        self._weights = weights
        self._rope = rope
        self._layout = PageShape(page.size, config.num_kv_heads, config.head_size, config.head_size, page.dtype).layout
        self._key_bytes = key_bytes(kernels, self._layout)
        self._value_bytes = value_bytes(kernels, self._layout)
        self.allocate(0)

    @property
    def bytes_per_page(self) -> int:
        return (self._key_bytes + self._value_bytes) * self._config.num_layers

    @property
    def weight_bytes(self) -> int:
        """Bytes of packed weights, all of which every pass reads."""
        linears = [self._weights.head]
        for layer in self._weights.layers:
            linears += [layer.qkv, layer.out, layer.gate_up, layer.down]
        return sum(linear.panels.nbytes for linear in linears)

    def allocate(self, num_pages: int) -> None:
        """Makes the KV pool, all zero."""
        num_layers = self._config.num_layers
        self.pools = [  # keys and values: [layers, pages, bytes]
            huge_memory(num_layers * num_pages * size).view(num_layers, num_pages, size)
            for size in (self._key_bytes, self._value_bytes)
        ]
        self._layers = (Layer * num_layers)(*map(self._layer, range(num_layers)))
        self._structure = self._decoder()

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        """Logits [R, V] in float32."""
        native = native_batch(batch)
        logits = torch.empty(len(batch.logit_rows), self.vocab_size)
        cosines, sines = self._rope.up_to(max(batch.kv_lengths))
        self._structure.cosines, self._structure.sines = cosines.data_ptr(), sines.data_ptr()
        self._kernels.library.hr_decode(
            self._kernels.crew, byref(self._structure), byref(native.structure), logits.data_ptr()
        )
        return logits

    def scrub(self, pages: Sequence[int]) -> None:
        for pool in self.pools:
            pool[:, list(pages)] = 0

    def _layer(self, index: int) -> Layer:
        weights: LayerWeights = self._weights.layers[index]
        linears = (weights.qkv, weights.out, weights.gate_up, weights.down)
        vectors = (weights.attention_norm, weights.mlp_norm, weights.query_norm, weights.key_norm)
        pages = Pages(*(pool[index].data_ptr() for pool in self.pools))
        return Layer(
            *(linear.structure for linear in linears),
            *(None if vector is None else vector.data_ptr() for vector in vectors),
            self._config.windows[index],
            self._config.has_rope[index],
            pages,
        )

    def _decoder(self) -> Decoder:
        config, embedding = self._config, self._weights.embedding
        return Decoder(
            num_layers=config.num_layers,
            hidden_size=config.hidden_size,
            heads=config.num_heads,
            rotary_size=config.head_size,
            vocab_size=config.vocab_size,
            norm_epsilon=config.norm_epsilon,
            scaling=config.head_size**-0.5,
            kv=self._layout,
            layers=ctypes.cast(self._layers, ctypes.POINTER(Layer)),
            final_norm=self._weights.final_norm.data_ptr(),
            head=self._weights.head.structure,
            embedding=None if embedding is None else embedding.data_ptr(),
            embedding_format=FORMATS[torch.float32 if embedding is None else embedding.dtype],
        )


@dataclass(frozen=True)
class PageFormat:
    """Tokens a KV page holds, and the type of what it holds: float32 or bfloat16."""

    size: int
    dtype: torch.dtype


class RopeTable:
    """Cosines and sines of positions, computed as far as anybody has asked."""

    def __init__(self, frequencies: torch.Tensor, factor: float) -> None:
        """`frequencies` [pairs] in radians a position; cosines and sines are multiplied by `factor`."""
        self._frequencies = frequencies
        self._factor = factor
        self._tables = self._compute(FIRST_POSITIONS)

    def up_to(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(cosines, sines) [at least num_positions, pairs]; valid until the next call."""
        if num_positions > len(self._tables[0]):
            self._tables = self._compute(max(num_positions, 2 * len(self._tables[0])))
        return self._tables

    def _compute(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.arange(num_positions).float()[:, None] * self._frequencies
        return (angles.cos() * self._factor).contiguous(), (angles.sin() * self._factor).contiguous()
