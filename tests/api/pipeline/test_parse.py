"""From bytes to a JSON object."""

import pytest

from api.pipeline.parse import parse_json
from tests.api.pipeline.refusals import facts_of, refusal

BAD_REQUEST = (400, None, None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", {}),
        (b' {"model": "m", "n": 1}\n', {"model": "m", "n": 1}),
        (b'\xef\xbb\xbf{"model": "m"}', {"model": "m"}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'{"text": "nul \\u0000 inside"}', {"text": "nul \x00 inside"}),
        (b'{"text": "\\ud83d\\ude00"}', {"text": "\U0001f600"}),
        ('{"text": "Öl 油 \U0001f6e2"}'.encode(), {"text": "Öl 油 \U0001f6e2"}),
        (b'{"seed": 18446744073709551615}', {"seed": 2**64 - 1}),
    ],
)
def test_a_json_object_is_read(body: bytes, expected: dict[str, object]) -> None:
    assert parse_json(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n\t",
        b"{",
        b'{"model": "m"',
        b'{"model": "m"} x',
        b"{'model': 'm'}",
        b"null",
        b"[]",
        b'"text"',
        b"12",
        b'{"a": 01}',
        b'{"a": "tab\tinside"}',
        b"model=m",
        b"\x00\x00",
        '{"model": "m"}'.encode("utf-16"),
    ],
)
def test_anything_but_a_json_object_is_refused(body: bytes) -> None:
    assert facts_of(lambda: parse_json(body)) == BAD_REQUEST


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":['])
@pytest.mark.parametrize("depth", [10_000, 300_000])
def test_deep_nesting_is_refused(opening: bytes, depth: int) -> None:
    body = b'{"model": "m", "metadata": ' + opening * depth
    with refusal() as refused:
        parse_json(body)
    assert refused.facts == BAD_REQUEST
    assert "nested too deeply" in str(refused.error)


def test_moderate_nesting_is_read() -> None:
    assert (
        parse_json(b'{"a": ' + b"[" * 50 + b"]" * 50 + b"}")["a"][0][0]
        == parse_json(b'{"a": ' + b"[" * 48 + b"]" * 48 + b"}")["a"]
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"text": "\\ud800"}',
        b'{"text": "\\udc00 alone"}',
        b'{"text": "\\ude00\\ud83d"}',
        b'{"text": "\\ud83d and then text"}',
        b'{"\\ud800": 1}',
    ],
)
def test_half_a_surrogate_pair_is_refused(body: bytes) -> None:
    assert facts_of(lambda: parse_json(body)) == BAD_REQUEST


@pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"caf\xe9"])
def test_text_that_is_not_utf8_is_refused(text: bytes) -> None:
    assert facts_of(lambda: parse_json(b'{"text": "' + text + b'"}')) == BAD_REQUEST


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"temperature": NaN}', "temperature"),
        (b'{"model": "m", "top_p": Infinity}', "top_p"),
        (b'{"min_p": -Infinity, "temperature": 1}', "min_p"),
        (b'{"presence_penalty": 1e999}', "presence_penalty"),
        (b'{"x": 1, "logit_bias": {"1": 0.5, "2": NaN}}', "logit_bias.2"),
        (b'{"prompt": [[1], [2, Infinity]]}', "prompt[1][1]"),
        (b"[NaN]", "[0]"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_by_the_name_of_its_field(body: bytes, param: str | None) -> None:
    assert facts_of(lambda: parse_json(body)) == (400, param, None)


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "application/json; charset=utf-8",
        'Application/JSON; charset="UTF-8"',
        "application/vnd.openai+json",
        "application/json;",
    ],
)
def test_json_content_types_are_accepted(content_type: str | None) -> None:
    assert parse_json(b"{}", content_type) == {}


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/json; charset=latin-1",
        "json",
    ],
)
def test_other_content_types_are_refused(content_type: str) -> None:
    assert facts_of(lambda: parse_json(b"{}", content_type)) == (415, None, "unsupported_media_type")
