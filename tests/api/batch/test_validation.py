"""Every line of an input file is found, and found good or bad, whatever it holds and wherever pieces of it end."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.batch import input_lines as reading
from api.batch.input_lines import input_lines
from api.batch.plan import LinePlan, PlannedLine, encoded_plan, prompt_key
from api.batch.validation import MAX_REPORTED, BadLine, Findings, Unusable, check_lines
from tests.api.batch.conftest import COMPLETIONS, jsonl, line

MAX_BYTES = 200


def checked(data: bytes) -> tuple[Findings, list[BadLine]]:
    findings = Findings()
    return findings, list(check_lines(io.BytesIO(data), COMPLETIONS, MAX_BYTES, findings))


def test_given_a_mark_and_line_ends_of_any_kind_then_lines_are_numbered_as_editors_do() -> None:
    data = b"\xef\xbb\xbfone\r\n\r\n   \ntwo\nthree"

    lines = list(input_lines(io.BytesIO(data), MAX_BYTES))

    assert [(each.number, each.text) for each in lines] == [(1, b"one"), (4, b"two"), (5, b"three")]
    assert [data[each.offset : each.offset + len(each.text)] for each in lines] == [b"one", b"two", b"three"]


@given(
    lines=st.lists(st.sampled_from([b"", b" ", b"a", b"{}", b"12345", b"123456", b"x" * 40]), max_size=12),
    end=st.sampled_from([b"\n", b"\r\n"]),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    read_size=st.integers(1, 9),
    has_last_end=st.booleans(),
)
def test_wherever_the_pieces_end_that_are_read_the_lines_are_the_same(
    lines: list[bytes], end: bytes, mark: bytes, read_size: int, has_last_end: bool
) -> None:
    data = mark + end.join(lines) + (end if has_last_end else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "READ_SIZE", read_size)
        found = list(input_lines(io.BytesIO(data), 7))

    expected = [(number, text) for number, text in enumerate(lines, start=1) if text.strip()]
    assert [each.number for each in found] == [number for number, _ in expected]
    for each, (_, text) in zip(found, expected, strict=True):
        assert data[each.offset :].startswith(text)
        assert each.is_too_long == (len(text) + len(end) - 1 > 7) or len(text) == 7
        assert text.startswith(each.text[:7])
        if not each.is_too_long:
            assert each.text == text


@pytest.mark.parametrize(
    ("text", "custom_id", "code", "param"),
    [
        (b"{", None, "invalid_json_line", None),
        (b"[1]", None, "invalid_json_line", None),
        (b"7", None, "invalid_json_line", None),
        (b"[" * 100 + b"]" * 100, None, "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', None, "invalid_json_line", None),
        (b'{"custom_id": "a", "body": NaN}', "a", "invalid_json_line", None),
        (b'{ "custom_id":"a\\"b", "body": {', 'a"b', "invalid_json_line", None),
        (b'{"method": "POST"}', None, "missing_required_parameter", "custom_id"),
        (b'{"custom_id": 7}', None, "invalid_custom_id", "custom_id"),
        (b'{"custom_id": ""}', None, "invalid_custom_id", "custom_id"),
        (b'{"custom_id": "a"}', "a", "missing_required_parameter", "method"),
        (b'{"custom_id": "a", "method": "GET"}', "a", "invalid_method", "method"),
        (b'{"custom_id": "a", "method": "POST"}', "a", "missing_required_parameter", "url"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1/other"}', "a", "invalid_url", "url"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1/completions"}', "a", "missing_required_parameter", "body"),
        (
            b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": [1]}', "a", "invalid_body", "body",
        ),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"model": "\xff"}}', "a",
         "invalid_json_line", None),
        (b'{"custom_id": "a", "x": "' + b"x" * MAX_BYTES + b'"}', "a", "line_too_large", None),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_the_good_one_behind_it_stays(
    text: bytes, custom_id: str | None, code: str, param: str | None
) -> None:
    findings, (bad,) = checked(text + b"\n" + jsonl([line("good")]))

    assert (bad.number, bad.custom_id, bad.error.code, bad.error.param) == (1, custom_id, code, param)
    assert bad.error.message.startswith("Line 1: ")
    assert findings.errors == [bad.error]
    assert [planned.number for planned in findings.good] == [2]


def test_of_lines_with_one_custom_id_the_first_is_run() -> None:
    findings, (bad,) = checked(jsonl([line("a", "first"), line("b"), line("a", "second")]))

    assert (bad.number, bad.custom_id, bad.error.code) == (3, "a", "duplicate_custom_id")
    assert [planned.number for planned in findings.good] == [1, 2]


def test_given_many_bad_lines_then_so_many_are_reported_and_all_are_found() -> None:
    findings, bad = checked(b"x\n" * (MAX_REPORTED + 5) + jsonl([line("a")]))

    assert (len(findings.errors), len(bad), findings.num_bad) == (MAX_REPORTED, MAX_REPORTED + 5, MAX_REPORTED + 5)


def test_given_no_good_line_then_the_file_cannot_be_used() -> None:
    with pytest.raises(Unusable) as refused:
        checked(b"x\ny\n")
    assert [error.line for error in refused.value.errors] == [1, 2]
    assert refused.value.total == 2


@pytest.mark.parametrize(("models", "told"), [(["m", "m"], "m"), (["m", "n"], ""), ([7, None], "")])
def test_the_model_is_told_where_all_lines_name_the_same(models: list[Any], told: str) -> None:
    assert checked(jsonl(line(f"{i}", model=model) for i, model in enumerate(models)))[0].model == told


def test_a_plan_holds_where_each_line_is_with_equal_beginnings_together() -> None:
    def key(**body: Any) -> bytes:
        return prompt_key(msgspec.Raw(json.dumps(body).encode()))

    long = "The same long beginning. " * 100
    keys = [
        key(user="1", messages=[{"role": "user", "content": long + "a"}]),
        key(messages=[{"role": "user", "content": "other"}]),
        key(messages=[{"role": "user", "content": long + "b"}], temperature=1),
    ]
    lines = [PlannedLine(number * 100, 10 * number, number, key) for number, key in enumerate(keys, start=1)]

    plan = LinePlan(encoded_plan(lines))

    assert len(plan) == 3
    assert [plan[place].number for place in range(3)] in ([1, 3, 2], [2, 1, 3])
    assert sorted((plan[place].number, plan[place].offset, plan[place].length) for place in range(3)) == [
        (1, 100, 10), (2, 200, 20), (3, 300, 30),
    ]  # fmt: skip


MEASURED = """
import sys
from api.batch.plan import encoded_plan
from api.batch.validation import Findings, check_lines

def peak_mib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024

before, findings = peak_mib(), Findings()
with open(sys.argv[1], "rb") as file:
    assert list(check_lines(file, "/v1/completions", 4 << 20, findings)) == []
assert len(encoded_plan(findings.good)) == 16 * 50_000
print(peak_mib() - before)
"""


def test_given_fifty_thousand_lines_then_memory_grows_by_a_fraction_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "input.jsonl"
    template = jsonl([line("request-NUMBER", "NUMBER " + "x" * 1000)])
    with file.open("wb") as output:
        output.writelines(template.replace(b"NUMBER", b"%d" % i) for i in range(50_000))
    assert file.stat().st_size > 55_000_000

    command = [sys.executable, "-c", MEASURED, str(file)]
    grown_mib = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert grown_mib < 40
