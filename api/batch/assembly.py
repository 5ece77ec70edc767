"""The end of a batch: its files are put together, its record is closed, and what it left behind is cleared away."""

import logging
import secrets
import shutil
import time
from collections.abc import Sequence

import msgspec

from api.batch.desk import Desk
from api.batch.files import FileRecord
from api.batch.records import Batch, LineError, derived_digits
from api.batch.storage import READ_SIZE
from api.batch.webhooks import event_of

log = logging.getLogger("headrace.batch")


class Assembly:
    def __init__(self, desk: Desk) -> None:
        self._store = desk.store
        self._storage = desk.storage
        self._files = desk.files
        self._tells = desk.settings.webhook_url != ""

    def store_plan(self, batch_id: str, data: bytes) -> str:
        """The new object's name."""
        name = f"{batch_id}/{secrets.token_hex(16)}"
        with self._storage.write(name) as writing:
            writing.write(data)
        return name

    def finish(self, batch: Batch) -> bool:
        """Files of the rows there are, then the end. May be repeated: the files have the same names."""
        return self._end(batch, batch.cause or "completed", self._assembled(batch))

    def fail(self, batch: Batch, errors: Sequence[LineError], total: int) -> bool:
        """End a batch that cannot be run, or not any more. The rows it has by then are kept."""
        try:
            files = self._assembled(batch)
        except FileNotFoundError:
            files = {}
        counts = {"total": total, "failed": total - batch.counts["completed"]}
        return self._end(batch, "failed", {**files, **counts, "errors": msgspec.json.encode(errors).decode()})

    def _end(self, batch: Batch, status: str, fields: dict[str, str | int]) -> bool:
        event = event_of(batch.id, status) if self._tells else b""
        has_ended = self._store.finish(batch.id, status, fields, event)
        log.info("batch " + status, extra={"batch_id": batch.id, "counts": dict(batch.counts)})
        return has_ended

    def _assembled(self, batch: Batch) -> dict[str, str | int]:
        outputs, errors = self._store.parts(batch.id)
        found = {"output": outputs, "error": errors}
        return {f"{kind}_file_id": self._file_of(batch, kind, parts) for kind, parts in found.items() if parts}

    def _file_of(self, batch: Batch, kind: str, parts: Sequence[str]) -> str:
        file_id, num_bytes, now_s = "file-" + derived_digits(batch.id, kind), 0, int(time.time())
        with self._storage.write(file_id) as writing:
            for name in parts:
                with self._storage.open(name) as part:
                    shutil.copyfileobj(part, writing, READ_SIZE)
                    num_bytes += part.tell()
        ttl_s = batch.order.output_ttl_s
        self._files.add(
            FileRecord(
                id=file_id,
                tenant=batch.order.tenant,
                filename=f"{batch.id}_{kind}.jsonl",
                purpose="batch_output",
                bytes=num_bytes,
                created_at=now_s,
                expires_at=None if ttl_s is None else now_s + ttl_s,
            )
        )
        return file_id
