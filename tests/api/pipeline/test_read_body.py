"""Reading a body, without a server."""

import io
from typing import Any

import pytest

from api.pipeline.body import read_body
from tests.api.pipeline.refusals import facts_of, refusal


class Broken(io.BytesIO):
    """An input that fails after its bytes, as a server's does for a broken chunk."""

    def read(self, size: int | None = -1, /) -> bytes:
        part = super().read(size)
        if not part:
            raise OSError("chunk missing its terminator")
        return part


def environ(body: bytes, **headers: Any) -> dict[str, Any]:
    return {"wsgi.input": io.BytesIO(body), **headers}


CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked"}


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 200_000])
def test_a_body_of_declared_length_is_read_whole(size: int) -> None:
    assert read_body(environ(b"x" * size, CONTENT_LENGTH=str(size)), 200_000, 5) == b"x" * size


@pytest.mark.parametrize("size", [0, 1, 65_536, 200_000])
def test_a_chunked_body_is_read_to_its_end(size: int) -> None:
    assert read_body(environ(b"x" * size, **CHUNKED), 200_000, 5) == b"x" * size


def test_no_declared_body_reads_nothing_even_if_bytes_follow() -> None:
    assert read_body(environ(b"GET / HTTP/1.1"), 100, 5) == b""
    assert read_body(environ(b"GET / HTTP/1.1", CONTENT_LENGTH="0"), 100, 5) == b""


def test_a_body_shorter_than_declared_is_refused_and_the_connection_closed() -> None:
    with refusal() as refused:
        read_body(environ(b'{"model":"m"}', CONTENT_LENGTH="14"), 100, 5)
    assert refused.facts == (400, None, None)
    assert refused.error is not None
    assert refused.error.headers == {"Connection": "close"}


def test_a_chunked_body_that_breaks_off_is_refused() -> None:
    assert facts_of(lambda: read_body({"wsgi.input": Broken(b'{"model":"m"}'), **CHUNKED}, 100, 5)) == (400, None, None)


@pytest.mark.parametrize("headers", [CHUNKED, {"CONTENT_LENGTH": "101"}])
def test_a_body_over_the_limit_is_refused_after_it_was_read_and_thrown_away(headers: dict[str, str]) -> None:
    source = environ(b"x" * 101, **headers)
    with refusal() as refused:
        read_body(source, 100, 5)
    assert refused.facts == (413, None, "payload_too_large")
    assert refused.error is not None
    assert refused.error.headers == {"Connection": "close"}
    assert source["wsgi.input"].read() == b""


def test_of_a_huge_body_only_a_part_is_thrown_away() -> None:
    source = environ(b"x" * 10_000_000, CONTENT_LENGTH="10000000")
    assert facts_of(lambda: read_body(source, 100_000, 5)) == (413, None, "payload_too_large")
    assert len(source["wsgi.input"].read()) >= 8_000_000


@pytest.mark.parametrize("length", ["-1", "1e3", "+5", "٣", "9" * 30, "5, 5"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    assert facts_of(lambda: read_body(environ(b"12345", CONTENT_LENGTH=length), 100, 5))[0] == 400


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
def test_a_compressed_body_is_refused(encoding: str) -> None:
    source = environ(b"12345", CONTENT_LENGTH="5", HTTP_CONTENT_ENCODING=encoding)
    assert facts_of(lambda: read_body(source, 100, 5)) == (415, None, "unsupported_media_type")


def test_the_encoding_identity_is_read() -> None:
    assert read_body(environ(b"12345", CONTENT_LENGTH="5", HTTP_CONTENT_ENCODING="identity"), 100, 5) == b"12345"
