"""Objects are stored as a whole or not at all, under names that lead nowhere else."""

import os
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest

from api.batch.storage import Storage, StorageUnavailable, open_storage
from worker.protocol.configuration import BadSetting

NAME = "file-0123"
BYTES = bytes(range(256)) * 4096


@dataclass(frozen=True)
class Settings:
    storage: str = ""
    data: str = ""


@pytest.fixture(params=["folder", "url of a folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    place = {"folder": str(tmp_path), "url of a folder": tmp_path.as_uri(), "memory": f"memory://{tmp_path}"}
    return open_storage(Settings(place[request.param]), "org/model")


def keep(storage: Storage, name: str, data: bytes = BYTES) -> None:
    with storage.write(name) as writing:
        writing.write(data)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_is_written_can_be_read_from_any_place(storage: Storage) -> None:
    with storage.write(NAME) as writing:
        for start in range(0, len(BYTES), 100_000):
            writing.write(BYTES[start : start + 100_000])
        assert not storage.exists(NAME)
    assert storage.exists(NAME)
    assert storage.size(NAME) == len(BYTES)
    with storage.open(NAME) as file:
        assert file.read() == BYTES
        file.seek(1000)
        assert file.read(10) == BYTES[1000:1010]
        assert file.seek(-3, os.SEEK_END) == len(BYTES) - 3
        assert list(file) == [BYTES[-3:]]


def test_lines_are_read_one_at_a_time(storage: Storage) -> None:
    keep(storage, NAME, b"one\ntwo\n\nlast")
    with storage.open(NAME) as file:
        assert list(file) == [b"one\n", b"two\n", b"\n", b"last"]


def test_an_object_is_replaced_as_a_whole(storage: Storage) -> None:
    keep(storage, NAME)
    with storage.write(NAME) as writing:
        writing.write(b"new")
        assert storage.size(NAME) == len(BYTES)
    assert storage.size(NAME) == 3


def test_given_an_error_while_writing_then_nothing_is_left(tmp_path: Path) -> None:
    storage = open_storage(Settings(str(tmp_path)), "m")

    def write_half() -> None:
        with storage.write(NAME) as writing:
            writing.write(BYTES)
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert files_below(tmp_path) == []


def test_what_is_not_there_is_said_to_be_missing_and_can_be_deleted(storage: Storage) -> None:
    assert not storage.exists(NAME)
    for ask in (storage.open, storage.size):
        with pytest.raises(FileNotFoundError):
            ask(NAME)
    storage.delete(NAME, "batch_1/part-1")
    storage.delete_all("batch_1")
    storage.delete_unfinished(NAME)


def test_a_folder_is_deleted_with_all_that_is_in_it(storage: Storage) -> None:
    for name in ("batch_1/plan", "batch_1/part-1", "batch_11/plan", NAME):
        keep(storage, name)
    storage.delete(NAME)
    unfinished = storage.begin("batch_1/part-2")
    unfinished.write(b"x")
    storage.delete_all("batch_1")
    found = [storage.exists(name) for name in ("batch_1/plan", "batch_1/part-1", "batch_11/plan", NAME)]
    assert found == [False, False, True, False]
    with pytest.raises(StorageUnavailable):
        unfinished.commit()


def test_what_a_killed_writer_left_is_deleted_and_nothing_else(tmp_path: Path) -> None:
    storage = open_storage(Settings(str(tmp_path)), "m")
    keep(storage, NAME)
    for name in (NAME, NAME + "4"):
        storage.begin(name).write(BYTES)
    storage.delete_unfinished(NAME)
    left = files_below(tmp_path)
    assert [path.rpartition(".")[0] for path in left] == [f"pool-m/_unfinished/{NAME}4", ""]
    assert left[1] == f"pool-m/{NAME}"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "/x",
        "x/",
        "a/b/c",
        "a/../b",
        "x\0",
        "x\n",
        "X",
        "a b",
        "_unfinished",
        "~",
        "é",
        "x" * 101,
    ],
)
def test_a_name_never_leads_out_of_the_folder(storage: Storage, name: str) -> None:
    for ask in (storage.begin, storage.open, storage.size, storage.exists, storage.delete, storage.delete_all):
        with pytest.raises(ValueError, match="no name of a stored object"):
            ask(name)


def test_pools_do_not_meet_in_one_place(tmp_path: Path) -> None:
    first, second = (open_storage(Settings(str(tmp_path)), pool) for pool in ("a/b", ".."))
    keep(first, NAME)
    keep(second, NAME, b"other")
    assert files_below(tmp_path) == [f"pool-../{NAME}", f"pool-a%2Fb/{NAME}"]
    assert first.size(NAME) == len(BYTES)


def test_without_a_setting_files_lie_in_the_data_folder(tmp_path: Path) -> None:
    keep(open_storage(Settings(data=str(tmp_path)), "m"), NAME)
    assert files_below(tmp_path) == [f"files/pool-m/{NAME}"]


def test_a_place_that_cannot_be_used_is_unavailable_whatever_is_asked(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    storage = open_storage(Settings(str(tmp_path / "a-file")), "m")
    for ask in (storage.begin, storage.open, storage.size, storage.delete, storage.delete_all):
        with pytest.raises(StorageUnavailable, match="the storage"):
            ask(NAME)


class Failing(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A place whose client has errors of its own kind, as those of object stores do."""

    protocol = "failing"

    def __getattribute__(self, name: str) -> object:
        if name in ("_open", "info", "ls", "rm_file", "exists", "expand_path"):
            raise RuntimeError("no such bucket")
        return super().__getattribute__(name)


def test_errors_of_the_places_own_kind_are_one_error() -> None:
    fsspec.register_implementation("failing", Failing, clobber=True)
    storage = open_storage(Settings("failing://bucket/folder"), "m")
    for ask in (storage.begin, storage.open, storage.size, storage.exists, storage.delete, storage.delete_all):
        with pytest.raises(StorageUnavailable, match="no such bucket"):
            ask(NAME)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://user:secret@bucket/x", "HEADRACE_STORAGE: s3:// needs a package that is not here. Install s3fs"),
        ("nowhere://user:secret@x", "HEADRACE_STORAGE: nowhere:// is no kind of storage that fsspec knows"),
    ],
)
def test_a_kind_of_place_that_is_not_to_be_had_is_refused_by_name(url: str, message: str) -> None:
    with pytest.raises(BadSetting) as refused:
        open_storage(Settings(url), "m")
    assert str(refused.value).startswith(message)
    assert "secret" not in str(refused.value)
