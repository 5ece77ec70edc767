"""Files belong to a tenant, are listed in order, count against a quota, and leave nothing when they go."""

import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from api.batch.files import ABANDONED_S, FileBook, FileRecord, NoSuchFile, mint_file_id
from api.batch.storage import Storage
from worker.protocol import keys
from worker.protocol.connection import connect

ROOMY = 10**9
DATA = b"0123456789"
_numbers = itertools.count()


@pytest.fixture
def pool() -> str:
    return f"files-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def client(broker_url: str) -> redis.Redis:
    return connect(broker_url)


@pytest.fixture
def storage(tmp_path: Path, pool: str) -> Storage:
    return Storage((tmp_path / "files").as_uri(), pool)


@pytest.fixture
def book(client: redis.Redis, pool: str, storage: Storage) -> FileBook:
    return FileBook(client, pool, storage)


def record(tenant: str = "alice", **more: Any) -> FileRecord:
    fields = {"filename": "x.jsonl", "purpose": "batch", "bytes": len(DATA), "created_at": int(time.time()), **more}
    return FileRecord(id=mint_file_id(), tenant=tenant, **fields)


def upload(book: FileBook, storage: Storage, file: FileRecord, limit: int = ROOMY) -> str:
    book.begin(file.id)
    with storage.write(file.id) as writing:
        writing.write(DATA)
    return book.admit(file, limit)


def kept(book: FileBook, storage: Storage, tenant: str = "alice", **more: Any) -> FileRecord:
    file = record(tenant, **more)
    assert upload(book, storage, file) == "kept"
    return file


def ids(files: list[FileRecord]) -> list[str]:
    return [file.id for file in files]


def left_in_redis(client: redis.Redis, pool: str) -> dict[str, Any]:
    prefix = keys.prefix(pool)
    found: Any = client.keys(prefix + "*")
    kinds: Any = [client.type(key) for key in found]
    return {key.decode().removeprefix(prefix): kind.decode() for key, kind in zip(found, kinds, strict=True)}


def left_in_storage(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_known_to_its_tenant_alone(book: FileBook, storage: Storage) -> None:
    file = kept(book, storage)
    assert book.get("alice", file.id) == file
    assert book.get("bob", file.id) is None
    assert book.delete("bob", file.id) == "unknown"
    assert book.hold("bob", file.id, "batch_1", time.time() + 60) is None
    assert ids(book.list("bob", None, 10, "desc").data) == []
    assert book.get("alice", file.id) == file


@pytest.mark.parametrize("file_id", ["", "file-", "file-x", "../" + "0" * 32, "file-" + "0" * 32, "file-" + "0" * 33])
def test_an_id_that_is_none_leads_to_no_file(book: FileBook, file_id: str) -> None:
    assert book.get("alice", file_id) is None
    assert book.delete("alice", file_id) == "unknown"
    assert book.hold("alice", file_id, "batch_1", time.time() + 60) is None


def test_files_are_listed_in_their_order_page_by_page(book: FileBook, storage: Storage) -> None:
    files = [kept(book, storage, purpose=purpose) for purpose in ("batch", "batch_output", "batch")]
    assert ids(book.list("alice", None, 10, "asc").data) == ids(files)
    assert ids(book.list("alice", None, 10, "desc").data) == ids(files[::-1])
    page = book.list("alice", None, 2, "asc")
    assert (ids(page.data), page.has_more) == (ids(files[:2]), True)
    page = book.list("alice", files[1].id, 2, "asc")
    assert (ids(page.data), page.has_more) == (ids(files[2:]), False)
    page = book.list("alice", files[2].id, 1, "desc")
    assert (ids(page.data), page.has_more) == ([files[1].id], True)
    page = book.list("alice", None, 1, "desc", "batch")
    assert (ids(page.data), page.has_more) == ([files[2].id], True)
    with pytest.raises(NoSuchFile):
        book.list("alice", mint_file_id(), 10, "asc")


def test_many_files_are_listed_past_those_of_another_purpose(book: FileBook) -> None:
    outputs = [record(purpose="batch_output") for _ in range(1001)]
    asked = record()
    for file in (*outputs, asked):
        book.add(file)
    page = book.list("alice", None, 1, "asc", "batch")
    assert (ids(page.data), page.has_more) == ([asked.id], False)


def test_a_deleted_file_leaves_nothing(
    book: FileBook, storage: Storage, client: redis.Redis, pool: str, tmp_path: Path
) -> None:
    file = kept(book, storage, expires_at=int(time.time()) + 3600)
    assert book.used_bytes("alice") == len(DATA)
    assert book.delete("alice", file.id) == "dropped"
    assert book.get("alice", file.id) is None
    assert left_in_storage(tmp_path) == []
    assert left_in_redis(client, pool) == {"files:bytes": "hash"}
    assert book.used_bytes("alice") == 0


def test_a_tenant_has_room_for_so_much_and_no_more(book: FileBook, storage: Storage) -> None:
    first = record()
    assert upload(book, storage, first, limit=25) == "kept"
    assert upload(book, storage, record(), limit=25) == "kept"
    assert upload(book, storage, record(), limit=25) == "full"
    assert upload(book, storage, record("bob"), limit=25) == "kept"
    book.add(record(purpose="batch_output"))
    assert book.used_bytes("alice") == 30
    book.delete("alice", first.id)
    assert book.used_bytes("alice") == 20


def test_to_add_a_file_again_changes_nothing(book: FileBook) -> None:
    file = record(purpose="batch_output")
    later = record()
    for each in (file, later, file, replace(file, bytes=99)):
        book.add(each)
    assert book.used_bytes("alice") == 20
    assert ids(book.list("alice", None, 10, "asc").data) == [file.id, later.id]


def test_a_file_past_its_time_is_not_shown_and_its_bytes_go(book: FileBook, storage: Storage, tmp_path: Path) -> None:
    now = int(time.time())
    over, later = kept(book, storage, expires_at=now), kept(book, storage, expires_at=now + 3600)
    for_ever = kept(book, storage)
    assert book.get("alice", over.id) is None
    assert ids(book.list("alice", None, 10, "asc").data) == [later.id, for_ever.id]
    assert book.expire_due(now) == [over.id]
    assert book.expire_due(now) == []
    assert {path.name for path in left_in_storage(tmp_path)} == {later.id, for_ever.id}
    assert book.used_bytes("alice") == 20
    assert book.expire_due(now + 3600) == [later.id]


def test_a_file_that_is_held_is_neither_deleted_nor_expires(book: FileBook, storage: Storage) -> None:
    now = time.time()
    file = kept(book, storage, expires_at=int(now) + 60)
    assert book.hold("alice", file.id, "batch_1", now + 3600) == file
    assert book.hold("alice", file.id, "batch_1", now + 3600) == file
    assert book.hold("alice", file.id, "batch_2", now - 1) == file
    assert book.delete("alice", file.id) == "held"
    assert book.expire_due(now + 70) == []
    assert storage.exists(file.id)
    book.release(file.id, "batch_1")
    assert book.expire_due(now + 100) == []
    assert book.expire_due(now + 131) == [file.id]
    assert not storage.exists(file.id)


def test_what_a_killed_upload_left_is_swept_by_its_age(
    book: FileBook, storage: Storage, client: redis.Redis, pool: str, tmp_path: Path
) -> None:
    now = time.time()
    unfinished, unrecorded, alive = (mint_file_id() for _ in range(3))
    for file_id in (unfinished, unrecorded, alive):
        book.begin(file_id)
    storage.begin(unfinished).write(DATA)
    with storage.write(unrecorded) as writing:
        writing.write(DATA)
    file = kept(book, storage)
    assert book.sweep(now) == []
    client.zadd(keys.prefix(pool) + "files:uploading", {alive: now + 60})
    assert set(book.sweep(now + ABANDONED_S + 30)) == {unfinished, unrecorded}
    assert [path.name for path in left_in_storage(tmp_path)] == [file.id]
    assert book.sweep(now + ABANDONED_S + 30) == []


def test_an_upload_taken_for_dead_is_told_so(book: FileBook) -> None:
    file = record()
    book.begin(file.id)
    book.sweep(time.time() + ABANDONED_S + 1)
    book.go_on(file.id)
    assert book.admit(file, ROOMY) == "lost"
    assert book.get("alice", file.id) is None


def test_an_upload_that_failed_is_forgotten(book: FileBook, client: redis.Redis, pool: str) -> None:
    file_id = mint_file_id()
    book.begin(file_id)
    book.abandon(file_id)
    assert left_in_redis(client, pool) == {}


def test_given_no_storage_then_a_file_is_deleted_and_its_bytes_go_later(
    book: FileBook, storage: Storage, tmp_path: Path
) -> None:
    file = kept(book, storage)
    (tmp_path / "files").rename(tmp_path / "away")
    (tmp_path / "files").touch()
    assert book.delete("alice", file.id) == "dropped"
    assert book.get("alice", file.id) is None
    (tmp_path / "files").unlink()
    (tmp_path / "away").rename(tmp_path / "files")
    assert [path.name for path in left_in_storage(tmp_path)] == [file.id]
    assert book.sweep(time.time()) == [file.id]
    assert left_in_storage(tmp_path) == []
