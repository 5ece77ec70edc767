"""The models that servers are compared with: copies whose answers never end by themselves.

Servers differ in how they can be told to ignore the end token, and ours cannot be told yet. A model that names an end
token which does not exist gives answers of exactly the length asked for, from every server alike.
"""

import json
import math
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from worker.protocol.model_identity import DEFAULT_MODEL, MANIFEST, default_model_folder, is_whole

RANDOM_MODEL = "rand-0.5b"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
NO_TOKEN_ID = -1
_BYTES_OF_A_VALUE = 2  # of the KV cache, which the roofline takes to be bf16 as the weights are
_GENERATION_CONFIG = "generation_config.json"


@dataclass(frozen=True)
class BenchModel:
    """A model folder in the format of transformers, and what a step at best has to read and compute for it."""

    folder: Path
    num_parameters: int  # that take part in a step: embeddings that are only looked up do not
    weight_bytes: int  # as stored
    kv_bytes: int  # of one token

    @property
    def name(self) -> str:
        return self.folder.name


def prepare(name_or_folder: str, folder: Path) -> BenchModel:
    """The model by its name (smollm2-135m, rand-0.5b) or any model folder, copied into `folder` by links.

    Raises OSError or subprocess.CalledProcessError when it cannot be made.
    """
    if name_or_folder == RANDOM_MODEL:
        copy = folder / RANDOM_MODEL
        if not (copy / _GENERATION_CONFIG).exists():
            _run("ops.bench.random_model", str(copy), str(default_model()))
    else:
        source = default_model() if name_or_folder == DEFAULT_MODEL else Path(name_or_folder).resolve()
        copy = folder / source.name
        _link(source, copy)
    _never_end(copy)
    return measure(copy)


def measure(folder: Path) -> BenchModel:
    """Sizes, from the headers of the weight files and the configuration."""
    tensors = {name: shape for file in folder.glob("*.safetensors") for name, shape in _tensors(file).items()}
    if any(name.startswith("lm_head.") for name in tensors):
        tensors = {name: shape for name, shape in tensors.items() if "embed_tokens" not in name}
    config = json.loads((folder / "config.json").read_text())
    num_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    kv_values = 2 * config["num_hidden_layers"] * (config.get("num_key_value_heads") or num_heads) * head_dim
    return BenchModel(
        folder,
        num_parameters=sum(count for count, _ in tensors.values()),
        weight_bytes=sum(count * size for count, size in tensors.values()),
        kv_bytes=kv_values * _BYTES_OF_A_VALUE,
    )


def _tensors(file: Path) -> dict[str, tuple[int, int]]:
    """(number of values, bytes of each) by tensor name."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    sizes = {}
    for name, entry in header.items():
        count = math.prod(entry["shape"])
        begin, end = entry["data_offsets"]
        sizes[name] = (count, (end - begin) // max(1, count))
    return sizes


def default_model() -> Path:
    """The folder of the model that Headrace serves by default, prepared where it is not yet."""
    folder = default_model_folder()
    if not is_whole(folder):
        _run("ops.cli", "prepare")
    return folder


def _link(source: Path, copy: Path) -> None:
    copy.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        link = copy / file.name
        if file.name not in (MANIFEST, _GENERATION_CONFIG) and not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(file)
    if (source / _GENERATION_CONFIG).exists():
        shutil.copy(source / _GENERATION_CONFIG, copy / _GENERATION_CONFIG)


def _never_end(folder: Path) -> None:
    file = folder / _GENERATION_CONFIG
    config = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**config, "eos_token_id": NO_TOKEN_ID}, indent=1) + "\n")


def _run(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], check=True, env=dict(os.environ))
