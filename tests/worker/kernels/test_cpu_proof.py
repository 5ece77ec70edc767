"""Only a library that passes its self-test on this processor is taken; any other costs a line in the log."""

import logging
from pathlib import Path

import pytest

from worker.kernels import dispatch
from worker.kernels.cpu import build, proof
from worker.kernels.cpu.isa import ISAS, Isa, available_isas
from worker.kernels.cpu.library import _SIGNATURES
from worker.kernels.cpu.proof import PASSED, Unproven, proven_library
from worker.kernels.dispatch import cpu_kernels

QUICK = Isa("quick", ("-O0",), frozenset())
CRASH = "__builtin_trap();"


def broken_sources(folder: Path, crashing: str = "") -> Path:
    """Sources of a library whose functions do nothing, but for one that crashes."""
    folder.mkdir()
    bodies = {name: CRASH if name == crashing else "" for name in _SIGNATURES}
    functions = [f'extern "C" long {name}() {{ {body} return 16; }}' for name, body in bodies.items()]
    (folder / "broken.cpp").write_text("#pragma GCC visibility push(default)\n" + "\n".join(functions))
    return folder


@pytest.fixture
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))


def use_sources(monkeypatch: pytest.MonkeyPatch, sources: Path) -> None:
    monkeypatch.setattr(build, "SOURCES", sources)


@pytest.mark.usefixtures("_own_cache")
@pytest.mark.parametrize(
    ("crashing", "verdict"),
    [("", "wrong products of 1 rows with float32 weights"), ("hr_linear_forward", "SIGILL")],
)
def test_given_a_broken_library_then_it_is_refused_with_its_reason_and_tested_only_once(
    crashing: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_sources(monkeypatch, broken_sources(tmp_path / "sources", crashing))
    with caplog.at_level(logging.INFO, "headrace.engine"):
        for _ in range(2):
            with pytest.raises(Unproven, match=f"^self-test failed: {verdict}$"):
                proven_library(QUICK)
    messages = [record.message for record in caplog.records]
    assert messages.count("testing the CPU kernels for quick, once") == 1


@pytest.mark.usefixtures("_own_cache")
def test_given_a_best_instruction_set_that_fails_then_auto_takes_the_next_and_one_line_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good = Path(__file__)
    monkeypatch.setattr(dispatch, "available_isas", lambda: ISAS)

    def proven(isa: Isa) -> Path:
        if isa.name != "avx2":
            raise Unproven("self-test failed: SIGILL")
        return good

    class Loaded:
        def __init__(self, path: Path, isa: str, num_threads: int) -> None:
            assert path == good
            self.isa, self.num_threads = isa, num_threads

    monkeypatch.setattr(dispatch, "proven_library", proven)
    monkeypatch.setattr(dispatch, "Kernels", Loaded)
    with caplog.at_level(logging.INFO, "headrace.engine"):
        kernels = cpu_kernels("auto", 2)
        assert cpu_kernels("amx", 2) is None
    assert kernels is not None
    assert kernels.isa == "avx2"
    assert [record.message for record in caplog.records] == [
        "CPU kernels: avx2, 2 threads (not amx: self-test failed: SIGILL; not avx512bf16: self-test failed: SIGILL; "
        "not avx512: self-test failed: SIGILL)",
        "CPU kernels: none, plain torch computes (not amx: self-test failed: SIGILL)",
    ]


def test_given_the_real_library_then_it_passes_and_the_verdict_is_kept_beside_it() -> None:
    library = proven_library(available_isas()[-1])
    (verdict,) = library.parent.glob(f"{library.stem}-*.verdict")
    assert verdict.read_text() == PASSED


@pytest.mark.usefixtures("_own_cache")
def test_given_a_test_that_is_ended_from_outside_then_no_verdict_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = broken_sources(tmp_path / "sources")
    text = (sources / "broken.cpp").read_text()
    killing = "#include <signal.h>\n#include <unistd.h>\n" + text.replace(
        "hr_linear_forward() {  return", "hr_linear_forward() { kill(getpid(), SIGKILL); return"
    )
    (sources / "broken.cpp").write_text(killing)
    use_sources(monkeypatch, sources)
    with pytest.raises(Unproven, match="ended by SIGKILL"):
        proven_library(QUICK)
    assert list((tmp_path / "cache/kernels").glob("*.verdict")) == []


def test_given_another_processor_then_the_verdict_is_another(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("model name : A\ncpu MHz : 1\nflags : avx2\n\nprocessor : 1\n")
    (tmp_path / "two").write_text("model name : A\ncpu MHz : 2\nflags : avx2\n\nprocessor : 1\n")
    (tmp_path / "three").write_text("model name : A\ncpu MHz : 1\nflags : avx2 fma\n\nprocessor : 1\n")
    one, two, three = (proof._processor(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two
    assert one != three
