"""Given a server, files are uploaded, listed, read and deleted, by their tenant only."""

import io
import itertools
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types import FileObject

from api.app import create_app
from api.batch.files import FileBook
from api.settings import ApiSettings
from tests.api.http.client import Json, error_of, get
from tests.api.http.conftest import Servers
from tests.api.http.raw import RawConnection
from tests.api.http.reciter import RECITER
from tests.api.http.schemas import assert_valid
from tests.api.http.uploads import (
    FILES,
    FORM,
    LINE,
    Part,
    Peaks,
    field,
    file_part,
    form,
    is_settled,
    send,
    stored,
    uploaded,
)
from tests.processes import wait_until
from tests.stack import WebServer

ALICE, BOB = {"Authorization": "Bearer sesame"}, {"Authorization": "Bearer open"}
GROWTH_MIB = 150
NUM_LINES = 50_000
LONG_LINE = LINE[:-3] + b'"prompt": "' + b"x" * 4098 + b'"}}\n'  # so many lines of it are 200 MiB


@pytest.fixture(autouse=True)
def leaves_no_upload_behind(servers: Servers) -> Iterator[None]:
    """After every test the storage holds the files that are known, and nothing else."""
    yield
    wait_until(lambda: is_settled(servers.stack, RECITER), "no upload is left", deadline_s=30)


@pytest.fixture
def client(server: WebServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def delete(server: WebServer, file_id: str, **headers: str) -> httpx.Response:
    return httpx.delete(f"{server.url}{FILES}/{file_id}", headers=headers, timeout=60)


def content(server: WebServer, file_id: str, **headers: str) -> httpx.Response:
    return get(server, f"{FILES}/{file_id}/content", **headers)


def refused(response: httpx.Response) -> tuple[int, str | None, str | None]:
    error = error_of(response)
    return response.status_code, error["param"], error["code"]


def test_openai_python_uploads_lists_reads_and_deletes(client: openai.OpenAI, servers: Servers) -> None:
    file = client.files.create(file=("in.jsonl", LINE), purpose="batch")
    assert (file.filename, file.bytes, file.purpose, file.status) == ("in.jsonl", len(LINE), "batch", "processed")
    assert file.expires_at == file.created_at + 30 * 86400
    assert client.files.wait_for_processing(file.id) == file == client.files.retrieve(file.id)
    assert next(iter(client.files.list(purpose="batch"))) == file
    assert client.files.content(file.id).read() == LINE
    assert client.files.delete(file.id).model_dump() == {"id": file.id, "object": "file", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    assert file.id not in stored(servers.stack, RECITER)


def test_a_file_expires_when_it_is_told_to(client: openai.OpenAI) -> None:
    file = client.files.create(
        file=io.BytesIO(LINE), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert file.expires_at == file.created_at + 3600
    assert client.files.delete(file.id).deleted


def test_files_are_listed_page_by_page(strict: WebServer) -> None:
    files = [uploaded(strict, **BOB)["id"] for _ in range(3)]

    def listed(query: str) -> Json:
        page: Json = get(strict, FILES + query, **BOB).json()
        for each in page["data"]:
            assert_valid(FileObject, each)
        ids = [each["id"] for each in page["data"]]
        assert (page["object"], page["first_id"], page["last_id"]) == ("list", ids[0], ids[-1])
        return {"ids": ids, "has_more": page["has_more"]}

    assert listed("") == {"ids": files[::-1], "has_more": False}
    assert listed("?limit=2&order=asc") == {"ids": files[:2], "has_more": True}
    assert listed(f"?limit=2&order=asc&after={files[1]}") == {"ids": files[2:], "has_more": False}
    empty = get(strict, f"{FILES}?purpose=batch_output", **BOB).json()
    assert empty == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    for file_id in files:
        assert delete(strict, file_id, **BOB).status_code == 200


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "limit=x", "order=up", "after=none", "purpose=x"])
def test_a_bad_page_is_refused_by_its_parameter(server: WebServer, query: str) -> None:
    assert refused(get(server, f"{FILES}?{query}")) == (400, query.partition("=")[0], None)


EXPIRY = "expires_after[anchor]", "expires_after[seconds]"
WRONG: dict[str, tuple[list[Part], str | None]] = {
    "no part": ([], "file"),
    "no file": ([field("purpose")], "file"),
    "no purpose": ([file_part()], "purpose"),
    "another purpose": ([file_part(), field("purpose", "fine-tune")], "purpose"),
    "an empty file": ([file_part(b""), field("purpose")], "file"),
    "a file that is none": ([field("file", LINE), field("purpose")], "file"),
    "two files": ([file_part(), file_part(), field("purpose")], "file"),
    "two purposes": ([field("purpose"), field("purpose"), file_part()], "purpose"),
    "a long field": ([field("purpose", "x" * 9000), file_part()], "purpose"),
    "no UTF-8": ([field("purpose", b"\xff"), file_part()], "purpose"),
    "no name": ([("", b"x"), file_part()], None),
    "many fields": ([field(f"f{number}") for number in range(40)], None),
    "a long head": ([(f'name="{"x" * 300_000}"', b"")], None),
    "an anchor alone": ([file_part(), field("purpose"), field(EXPIRY[0], "created_at")], EXPIRY[1]),
    "another anchor": ([file_part(), field("purpose"), field(EXPIRY[0], "x"), field(EXPIRY[1], "3600")], EXPIRY[0]),
    "no anchor": ([file_part(), field("purpose"), field(EXPIRY[1], "3600")], EXPIRY[0]),
    **{
        f"{seconds} seconds": (
            [file_part(), field("purpose"), field(EXPIRY[0], "created_at"), field(EXPIRY[1], seconds)],
            EXPIRY[1],
        )
        for seconds in ("3599", "2592001", "x", "-1", "")
    },
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_form_is_refused_and_says_what_is_wrong(server: WebServer, wrong: str) -> None:
    parts, param = WRONG[wrong]
    assert refused(send(server, *parts)) == (400, param, None)


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("", 415),
        ("application/json", 415),
        ("multipart/mixed; boundary=limit", 415),
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=", 400),
        (f"multipart/form-data; boundary={'x' * 201}", 400),
        ("multipart/form-data; boundary=other", 400),
    ],
)
def test_what_is_no_form_is_refused(server: WebServer, content_type: str, status: int) -> None:
    body = form(file_part(), field("purpose"))
    response = httpx.post(server.url + FILES, content=body, headers={"Content-Type": content_type}, timeout=60)
    assert refused(response)[0] == status


@pytest.mark.parametrize("cut", [3, 20, 60, 120, -30, -4])
def test_a_form_without_its_end_is_refused(server: WebServer, cut: int) -> None:
    response = httpx.post(
        server.url + FILES, content=form(file_part(), field("purpose"))[:cut], headers=FORM, timeout=60
    )
    assert refused(response)[0] == 400


def upload_head(num_bytes: int) -> bytes:
    return (
        f"POST {FILES} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sesame\r\n"
        f"Content-Type: {FORM['Content-Type']}\r\nContent-Length: {num_bytes}\r\n\r\n"
    ).encode()


def test_a_client_that_leaves_in_the_middle_leaves_nothing(strict: WebServer, servers: Servers) -> None:
    before = stored(servers.stack, RECITER)
    body = form(file_part(b"x" * 150_000))
    with RawConnection(strict) as connection:
        connection.send(upload_head(len(body)) + body[:140_000])
        wait_until(lambda: stored(servers.stack, RECITER) != before, "the upload is stored as it comes")
    wait_until(lambda: stored(servers.stack, RECITER) == before, "nothing of the upload is left")


def test_a_client_that_stops_in_the_middle_is_told_so(strict: WebServer) -> None:
    body = form(file_part(b"x" * 150_000))
    with RawConnection(strict) as connection:
        connection.send(upload_head(len(body)) + body[:140_000])
        assert connection.error()[0] == 408
        assert connection.is_closed()


def test_a_slow_client_may_take_longer_in_all(strict: WebServer) -> None:
    """The body timeout of this server is 2 seconds, and the upload takes longer."""
    body = form(file_part(b"x" * 190_000), field("purpose"))
    with RawConnection(strict) as connection:
        connection.send(upload_head(len(body)))
        for start in range(0, len(body), 66_000):
            time.sleep(0.9)
            connection.send(body[start : start + 66_000])
        response, answer = connection.response()
    assert response.status == 200, answer
    file_id = httpx.Response(200, content=answer).json()["id"]
    assert delete(strict, file_id, **ALICE).status_code == 200


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("num_bytes", [200_001, 2_000_000])
def test_a_file_too_large_is_refused(strict: WebServer, num_bytes: int, is_chunked: bool) -> None:
    body = form(field("purpose"), file_part(b"x" * num_bytes))
    sent: Any = iter([body]) if is_chunked else body
    response = httpx.post(strict.url + FILES, content=sent, headers={**FORM, **ALICE}, timeout=60)
    assert refused(response)[0] == 413
    assert error_of(response)["code"] in ("file_too_large", "payload_too_large")


def test_a_tenant_has_room_for_so_many_bytes(strict: WebServer) -> None:
    files = [uploaded(strict, b"x" * 190_000, **ALICE)["id"] for _ in range(2)]
    full = send(strict, file_part(b"x" * 190_000), field("purpose"), **ALICE)
    assert refused(full) == (413, "file", "storage_full")
    files.append(uploaded(strict, b"x" * 110_000, **ALICE)["id"])
    other = uploaded(strict, b"x" * 190_000, **BOB)["id"]
    assert delete(strict, other, **BOB).status_code == 200
    for file_id in files:
        assert delete(strict, file_id, **ALICE).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "..\\x", "a b;c=d", "%00%0d%0aSet-Cookie: x", "ü 😀", "x" * 255, "", "'*`$(x)"],
)
def test_a_filename_is_shown_and_leads_nowhere(server: WebServer, servers: Servers, name: str) -> None:
    file = send(server, file_part(filename=name), field("purpose")).json()
    assert file["filename"] == name
    assert file["id"] in stored(servers.stack, RECITER)
    read = content(server, file["id"])
    assert read.content == LINE
    assert read.headers["Content-Disposition"].isascii()
    assert "set-cookie" not in read.headers
    assert delete(server, file["id"]).status_code == 200


@pytest.mark.parametrize(
    "file_id",
    ["file-" + "0" * 32, "x", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "file-%00", "_unfinished"],
)
def test_an_id_is_never_a_path(server: WebServer, file_id: str) -> None:
    for asked in (get(server, f"{FILES}/{file_id}"), content(server, file_id), delete(server, file_id)):
        assert asked.status_code == 404
        assert error_of(asked)["code"] in ("not_found", "unknown_url")


def test_another_tenant_finds_nothing(strict: WebServer) -> None:
    file = uploaded(strict, **ALICE)
    assert get(strict, f"{FILES}/{file['id']}", **ALICE).json() == file
    for asked in (get(strict, f"{FILES}/{file['id']}", **BOB), content(strict, file["id"], **BOB)):
        assert refused(asked) == (404, None, "not_found")
    assert refused(delete(strict, file["id"], **BOB)) == (404, None, "not_found")
    assert get(strict, FILES, **BOB).json()["data"] == []
    for asked in (get(strict, FILES), content(strict, file["id"]), delete(strict, file["id"]), send(strict)):
        assert asked.status_code == 401
    assert delete(strict, file["id"], **ALICE).status_code == 200


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=300000-", 300_000, 600_000),
        ("bytes=-5", 599_995, 600_000),
        ("bytes=599999-700000", 599_999, 600_000),
        ("bytes=100000-499999", 100_000, 500_000),
    ],
)
def test_a_range_of_a_file_can_be_read(server: WebServer, asked: str, start: int, stop: int) -> None:
    whole = b"".join(number.to_bytes(4) for number in range(150_000))
    file_id = uploaded(server, whole)["id"]
    etag = content(server, file_id).headers["ETag"]
    for headers in ({"Range": asked}, {"Range": asked, "If-Range": etag}):
        part = content(server, file_id, **headers)
        assert (part.status_code, part.content) == (206, whole[start:stop])
        assert part.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(whole)}"
    assert delete(server, file_id).status_code == 200


def test_a_range_that_cannot_be_had_is_refused_and_others_are_the_whole_file(server: WebServer) -> None:
    file_id = uploaded(server)["id"]
    beyond = content(server, file_id, Range="bytes=1000-")
    assert refused(beyond) == (416, None, "range_not_satisfiable")
    assert beyond.headers["Content-Range"] == f"bytes */{len(LINE)}"
    for headers in ({"Range": "bytes=0-1,3-4"}, {"Range": "lines=1-2"}, {"Range": "bytes=x"}, {"Range": "bytes=-1000"}):
        assert (content(server, file_id, **headers).status_code, content(server, file_id).content) == (200, LINE)
    assert content(server, file_id, **{"Range": "bytes=0-1", "If-Range": '"other"'}).content == LINE
    head = httpx.head(f"{server.url}{FILES}/{file_id}/content", timeout=60)
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, str(len(LINE)), b"")
    assert head.headers["Accept-Ranges"] == "bytes"
    assert delete(server, file_id).status_code == 200


def test_a_file_that_a_batch_reads_is_not_deleted(client: openai.OpenAI, servers: Servers) -> None:

    file = client.files.create(file=("in.jsonl", LINE), purpose="batch")
    storage: Any = None
    book = FileBook(servers.stack.redis(), RECITER, storage)
    assert book.hold("default", file.id, "batch_1", time.time() + 600) is not None
    with pytest.raises(openai.ConflictError) as held:
        client.files.delete(file.id)
    assert held.value.code == "file_in_use"
    book.release(file.id, "batch_1")
    assert client.files.delete(file.id).deleted


def test_a_large_file_is_never_in_memory(server: WebServer) -> None:
    head, tail = form(file_part(b"|"), field("purpose")).split(b"|")
    peaks = Peaks(server.process)
    lines = itertools.repeat(LONG_LINE * 50, NUM_LINES // 50)
    sent = itertools.chain([head], lines, [tail])
    file = httpx.post(server.url + FILES, content=sent, headers=FORM, timeout=240).json()
    assert file["bytes"] == len(LONG_LINE) * NUM_LINES
    with httpx.stream("GET", f"{server.url}{FILES}/{file['id']}/content", timeout=240) as read:
        assert sum(map(len, read.iter_raw())) == file["bytes"]
    assert peaks.growth_mib() < GROWTH_MIB
    assert delete(server, file["id"]).status_code == 200


@pytest.mark.parametrize("away", ["broker", "storage"])
def test_given_no_broker_or_no_storage_then_an_upload_is_told_to_come_again(
    servers: Servers, tmp_path: Any, away: str
) -> None:
    (tmp_path / "a-file").touch()
    settings = ApiSettings(
        redis_url="redis://127.0.0.1:1/0" if away == "broker" else servers.stack.redis_url,
        model=servers.stack.environ["HEADRACE_MODEL"],
        model_name="elsewhere",
        storage=str(tmp_path / ("a-file" if away == "storage" else "files")),
    )
    client = create_app(settings).test_client()
    body = form(file_part(), field("purpose"))
    response = client.post(FILES, data=body, headers=FORM)
    assert response.status_code == 503
    assert response.json is not None
    assert response.json["error"]["code"] == "unavailable"
    assert "Retry-After" in response.headers


def test_browsers_may_upload_and_delete(server: WebServer) -> None:
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "DELETE"}
    allowed = httpx.options(f"{server.url}{FILES}/x", headers=asked, timeout=60)
    assert "DELETE" in allowed.headers["Access-Control-Allow-Methods"]
