"""Uploads as tests send them: forms by hand, so that they can be wrong in every way."""

from collections.abc import Iterator
from pathlib import Path

import httpx
from openai.types import FileObject

from tests.api.http.client import Json, post
from tests.api.http.schemas import assert_valid
from tests.processes import RunningProcess
from tests.stack import Stack, WebServer
from worker.protocol import keys

FILES = "/v1/files"
BOUNDARY = "limit"
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
LINE = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}}\n'

Part = tuple[str, bytes]  # what stands behind "form-data; ", and the content


def file_part(content: bytes = LINE, filename: str = "in.jsonl") -> Part:
    quoted = filename.replace("\\", "\\\\")
    return f'name="file"; filename="{quoted}"', content


def field(name: str, value: str | bytes = "batch") -> Part:
    return f'name="{name}"', value if isinstance(value, bytes) else value.encode()


def form(*parts: Part) -> bytes:
    heads = [f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() for head, _ in parts]
    sent = b"".join(head + content + b"\r\n" for head, (_, content) in zip(heads, parts, strict=True))
    return sent + f"--{BOUNDARY}--\r\n".encode()


def send(server: WebServer, *parts: Part, **headers: str) -> httpx.Response:
    return post(server, FILES, form(*parts), **FORM, **headers)


def uploaded(server: WebServer, content: bytes = LINE, /, **headers: str) -> Json:
    """A file that is accepted."""
    response = send(server, file_part(content), field("purpose"), **headers)
    assert response.status_code == 200, response.text
    file: Json = response.json()
    assert_valid(FileObject, file)
    return file


class Peaks:
    """How much more memory the processes of a server took at most, since this was made."""

    def __init__(self, server: RunningProcess) -> None:
        self._before = {pid: _memory(pid, "VmRSS") for pid in _family(server.pid)}
        for pid in self._before:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is counted from now on

    def growth_mib(self) -> float:
        return max(_memory(pid, "VmHWM") - before for pid, before in self._before.items()) / 1024


def _family(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _family(int(child))


def _memory(pid: int, name: str) -> int:
    """KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def stored(stack: Stack, pool: str) -> set[str]:
    """All files in the storage of a pool, finished or not."""
    folder = stack.folder / "data" / "files" / f"pool-{pool}"
    return {path.name for path in folder.rglob("*") if path.is_file()}


def is_settled(stack: Stack, pool: str) -> bool:
    """No upload is under way, and none left anything."""
    client, prefix = stack.redis(), keys.prefix(pool)
    known = {key.decode().rpartition(":")[2] for key in client.scan_iter(f"{prefix}file:*")}
    return not client.exists(f"{prefix}files:uploading", f"{prefix}files:doomed") and stored(stack, pool) == known
