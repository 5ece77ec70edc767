"""Reading the Procfile."""

from pathlib import Path

import pytest

from ops.cli import ROOT
from ops.procfile import BadProcfile, read_procfile


def test_given_comments_and_quotes_then_each_line_becomes_a_command_in_order(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("# all\n\nweb: headrace web --name 'a b'\nworker:python -m worker\n")

    assert read_procfile(tmp_path / "Procfile") == {
        "web": ["headrace", "web", "--name", "a b"],
        "worker": ["python", "-m", "worker"],
    }


@pytest.mark.parametrize("line", ["web headrace web", "web:", ": headrace web", "web: a\nweb: b"])
def test_given_a_line_that_is_no_process_then_it_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "Procfile").write_text(line + "\n")

    with pytest.raises(BadProcfile, match=f"Procfile:{line.count(chr(10)) + 1}: expected"):
        read_procfile(tmp_path / "Procfile")


def test_given_no_file_then_the_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(BadProcfile, match="Procfile: No such file"):
        read_procfile(tmp_path / "Procfile")


def test_our_own_names_the_four_processes() -> None:
    assert list(read_procfile(ROOT / "Procfile")) == ["broker", "web", "worker", "batch"]
