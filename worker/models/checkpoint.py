"""A model's weights in safetensors files, memory-mapped: a tensor costs memory only while somebody reads it."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

SINGLE_FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
NUM_SAMPLED_VALUES = 64


class NoSafetensors(OSError):
    """The model has no weights in safetensors files."""


class Checkpoint:
    """All tensors of a model folder or hub id, by name."""

    def __init__(self, path: str) -> None:
        """Raises NoSafetensors, or OSError when a file named by the index cannot be read."""
        self._files: list[Any] = []
        self._file_of: dict[str, Any] = {}
        for file in weight_files(path):
            opened: Any = safe_open(file, framework="pt", device="cpu")
            self._files.append(opened)
            self._file_of.update(dict.fromkeys(opened.keys(), opened))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._file_of)

    def dtype(self, name: str) -> str:
        """As safetensors spells it: BF16, F16, F32 ..."""
        return str(self._file_of[name].get_slice(name).get_dtype())

    def tensor(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file_of[name].get_tensor(name)
        return tensor

    def hash(self, names: Iterable[str]) -> str:
        """16 hex digits from each tensor's name, type, shape and a sample of its values: tells fine-tunes apart."""
        digest = hashlib.sha256()
        for name in sorted(names):
            weight = self.tensor(name)
            flat = weight.reshape(-1)
            sample = flat[:: max(1, flat.numel() // NUM_SAMPLED_VALUES)][:NUM_SAMPLED_VALUES]
            digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
            digest.update(sample.contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]


def weight_files(path: str) -> list[str]:
    """The safetensors files of a folder or hub id (downloaded where needed). Raises NoSafetensors, OSError."""
    if index := _find(path, INDEX):
        names = sorted(set(json.loads(Path(index).read_text())["weight_map"].values()))
        files = [_find(path, name) for name in names]
        if missing := [name for name, file in zip(names, files, strict=True) if file is None]:
            raise OSError(f"{path}: its index names {missing[0]}, which is not there")
        return [file for file in files if file is not None]
    if single := _find(path, SINGLE_FILE):
        return [single]
    raise NoSafetensors(f"{path} has no {SINGLE_FILE}")


def _find(path: str, name: str) -> str | None:
    from transformers.utils import cached_file  # noqa: PLC0415  heavy

    if Path(path).is_dir():
        file = Path(path) / name
        return str(file) if file.exists() else None
    found: str | None = cached_file(
        path, name, _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False
    )
    return found
