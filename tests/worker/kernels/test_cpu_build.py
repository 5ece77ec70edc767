"""The kernels are compiled once, kept, shared by workers that start together, and never missed where they cannot be."""

import logging
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ops.cli import ROOT
from tests.worker.kernels.native import ISA_NAMES, NATIVE_NAMES
from worker.kernels import dispatch
from worker.kernels.cpu import build, isa
from worker.kernels.cpu.build import CannotBuild, library_file
from worker.kernels.cpu.isa import Isa, available_isas
from worker.kernels.cpu.library import Kernels
from worker.kernels.dispatch import UnknownKernels, cpu_kernels

QUICK = Isa("quick", ("-O0",), frozenset())


@pytest.fixture
def _small_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own and a library that compiles at once."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "one.cpp").write_text('extern "C" int one() { return 1; }\n')
    monkeypatch.setattr(build, "SOURCES", sources)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("_small_sources")
def test_given_unchanged_sources_then_nothing_is_compiled_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.engine"):
        first = library_file(QUICK)
        written_ns = first.stat().st_mtime_ns
        assert library_file(QUICK) == first
    assert first.stat().st_mtime_ns == written_ns
    assert [record.message.split(" with ")[0] for record in caplog.records][:1] == ["compiling the CPU kernels"]
    assert len(caplog.records) == 2  # begun and done, once
    assert sorted(path.name for path in first.parent.iterdir()) == sorted([first.name, "lock"])


@pytest.mark.usefixtures("_small_sources")
def test_given_a_changed_source_or_flag_then_it_is_another_library() -> None:
    first = library_file(QUICK)
    assert library_file(QUICK, ["-DOTHER"]) != first
    (build.SOURCES / "one.cpp").write_text('extern "C" int one() { return 2; }\n')
    assert library_file(QUICK) != first


@pytest.mark.usefixtures("_small_sources")
def test_given_workers_that_start_together_then_one_compiles_for_all() -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        found = pool.map(library_file, [QUICK] * 8)
    assert len(set(found)) == 1
    assert found[0].exists()


@pytest.mark.usefixtures("_small_sources")
def test_given_a_source_that_does_not_compile_then_the_first_error_is_told() -> None:
    (build.SOURCES / "one.cpp").write_text("int one() { return nothing; }\n")
    with pytest.raises(CannotBuild, match=r"one\.cpp:1.*'?nothing'?"):
        library_file(QUICK)
    assert list((build.SOURCES.parent / "cache/kernels").glob("*.so")) == []


def test_given_no_compiler_then_plain_torch_computes_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with caplog.at_level(logging.INFO, "headrace.engine"):
        assert cpu_kernels("auto", 1) is None
    assert [record.message for record in caplog.records] == [
        "CPU kernels: none, plain torch computes (there is no C++ compiler)"
    ]


def test_given_another_processor_then_plain_torch_computes_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch, "available_isas", lambda: ())
    with caplog.at_level(logging.INFO, "headrace.engine"):
        assert cpu_kernels("auto", 1) is None
    assert [record.message for record in caplog.records] == [
        "CPU kernels: none, plain torch computes (this processor has none of the instruction sets they are written for)"
    ]


def test_given_a_place_that_cannot_be_written_then_plain_torch_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "file"))
    assert cpu_kernels("auto", 1) is None


def test_given_kernels_then_one_line_says_which(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.engine"):
        kernels = cpu_kernels("auto", 3)
    assert kernels is not None
    assert caplog.records[-1].message == f"CPU kernels: {ISA_NAMES[0]}, 3 threads"
    assert cpu_kernels("none", 3) is None


def test_given_an_instruction_set_this_processor_lacks_then_it_is_refused_by_name() -> None:
    with pytest.raises(UnknownKernels, match=r"expected auto, .* or none"):
        cpu_kernels("neon", 1)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("sse2", []),
        ("avx2", []),
        ("avx2 fma", ["avx2"]),
        ("avx2 fma avx512f", ["avx2"]),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl", ["avx512", "avx2"]),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16", ["avx512bf16", "avx512", "avx2"]),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16", ["avx512", "avx2"]),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl amx_tile amx_bf16", ["avx512", "avx2"]),
        (
            "avx2 fma avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 amx_tile amx_bf16",
            ["amx", "avx512bf16", "avx512", "avx2"],
        ),
    ],
)
def test_given_flags_of_a_processor_then_its_best_instruction_set_comes_first(
    flags: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isa, "cpu_flags", lambda: frozenset(flags.split()))
    assert [each.name for each in available_isas()] == expected
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert available_isas() == ()


def test_given_every_instruction_set_then_it_compiles_here() -> None:
    foreign = [each for each in isa.ISAS if each.name not in NATIVE_NAMES]  # the others are used by other tests
    for each in foreign if platform.machine() == "x86_64" else ():
        assert library_file(each, ["-O0"]).exists()


def test_given_a_crew_without_work_then_its_threads_sleep() -> None:
    kernels = Kernels(library_file(available_isas()[0]), available_isas()[0].name, 4)
    assert kernels.num_threads == 4
    time.sleep(0.2)
    before = time.process_time()
    threading.Event().wait(1.0)
    assert time.process_time() - before < 0.5  # three spinning threads would take three seconds


SANITIZED = """
import random, torch
from tests.worker.kernels import native
from tests.worker.kernels.test_cpu_attention import HEAD_SIZES, PAGE_SIZES, attend, random_options, random_pages
from tests.worker.kernels.test_cpu_attention import poisoned_layer, random_sequences
from tests.worker.kernels.test_cpu_sampling import VOCAB_SIZES, random_row
from worker.engine.draw import Draw
from worker.engine.sampler import sample
from worker.kernels.cpu.attention import PageShape
from worker.kernels.cpu.build import library_file
from worker.kernels.cpu.library import Kernels
from worker.kernels.cpu.linear import PackedLinear

isa = native.ISAS[{isa!r}]
kernels = Kernels(library_file(isa, {flags!r}), isa.name, 2)
import tests.worker.kernels.test_cpu_attention as attention
attention.kernels_of = lambda *_: kernels
is_emulated = isa.name not in native.NATIVE_NAMES  # and slow: it gets shorter sequences and fewer of them
attention.LENGTHS = (1, 17, 33, 65, 129) if is_emulated else attention.LENGTHS
for weight_format in range(4):
    for out_size, in_size, rows in ((1, 32, 1), (33, 64, 7), (100, 72, 40)):
        x = torch.randn(rows, in_size)
        linear = PackedLinear(kernels, torch.randn(out_size, in_size), torch.randn(out_size), weight_format,
                              torch.empty(1 << 20, dtype=torch.uint8))
        assert linear(x).isfinite().all()
for case in range(6 if is_emulated else 12):
    dice = random.Random(case)
    page_size, size = PAGE_SIZES[case % 6], HEAD_SIZES[case % 7]
    shape = PageShape(page_size, 2, size, size, (torch.float32, torch.bfloat16)[case % 2])
    sequences = random_sequences(dice, shape, 2 * (case % 8 + 1))
    num_pages = 5 * -(-300 // page_size)
    pages = random_pages(dice, [stop for _, stop in sequences.spans], page_size, num_pages)
    layer = poisoned_layer(isa.name, 2, shape, num_pages)
    options = random_options(dice, 2 * (case % 8 + 1))
    assert attend(layer, sequences, pages, page_size, options).isfinite().all()
for vocab_size in VOCAB_SIZES:
    rows = [random_row(random.Random(case), vocab_size) for case in range(8)]
    assert all(isinstance(draw, Draw) for draw in sample(torch.randn(8, vocab_size), rows, kernels) if vocab_size > 64)
print("clean")
"""


@pytest.mark.parametrize("isa_name", NATIVE_NAMES[:1])
def test_given_sanitizers_of_addresses_and_bounds_then_they_find_nothing(isa_name: str) -> None:
    flags = ["-fsanitize=address,bounds,alignment", "-fno-sanitize-recover=bounds,alignment", "-O0", "-g1"]
    compiler = build.find_compiler()
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {**os.environ, "LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    result = subprocess.run(
        [sys.executable, "-c", SANITIZED.format(flags=flags, isa=isa_name)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.stdout == "clean\n", result.stderr[-4000:]
