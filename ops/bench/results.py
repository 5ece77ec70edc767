"""All that one run of the benchmark found out, as it is kept in results.json."""

from pathlib import Path
from typing import Any

import msgspec

from ops.bench.admission import AdmissionResult
from ops.bench.bench_model import BenchModel
from ops.bench.engine_task import Step
from ops.bench.measurement import Measurement
from ops.bench.path_times import Timing
from ops.bench.roofline import Roofline

FILE = "results.json"


class Start(msgspec.Struct, frozen=True):
    """`first_token_s`: from starting the server to its first piece of text."""

    model: str
    server: str
    first_token_s: float


class Results(msgspec.Struct, kw_only=True):
    """`absent`: what could not be measured, with the reason. `took_s`: the whole run so far."""

    machine: str = ""
    date: str = ""
    command: str = ""
    took_s: float = 0.0
    roofline: Roofline
    models: dict[str, BenchModel] = {}
    measurements: list[Measurement] = []
    starts: list[Start] = []
    steps: list[Step] = []
    timings: dict[str, list[Timing]] = {}  # by model: the lean decoder and the generic path
    admission: AdmissionResult | None = None
    versions: list[str] = []
    absent: dict[str, str] = {}


def save(results: Results, folder: Path) -> None:
    (folder / FILE).write_bytes(msgspec.json.encode(results, enc_hook=str))


def load(file: Path) -> Results:
    """Raises OSError, and msgspec.DecodeError for a file of another version."""
    return msgspec.json.decode(file.read_bytes(), type=Results, dec_hook=_from_text)


def _from_text(kind: type, text: Any) -> Any:
    """Paths are the one kind of value that JSON has no place for."""
    return kind(text)
