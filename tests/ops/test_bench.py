"""The benchmark from end to end, small."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ops.bench.options import SERVERS
from ops.bench.peers import PEERS
from ops.bench.results import FILE, load
from tests.processes import clean_environment

NO_PEERS = {peer.variable: "/nowhere" for peer in PEERS.values()}


@pytest.fixture(scope="module")
def out(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a quick run's results, on a machine where no peer is installed."""
    folder = tmp_path_factory.mktemp("bench")
    arguments = ["--quick", "--wait-quiet", "0", "--models", str(tiny_model_folder), "--out", str(folder)]
    servers = ",".join(name for name in SERVERS if " " not in name)
    chosen = ["--workloads", "c1,c8,batch", "--servers", servers, "--set", "HEADRACE_WEB_PROCESSES=1"]
    result = subprocess.run(
        [sys.executable, "-m", "ops.bench", *arguments, *chosen],
        env=clean_environment(PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}", **NO_PEERS),
        stdout=subprocess.PIPE,
        check=True,
        timeout=250,
    )
    (folder / "printed").write_bytes(result.stdout)
    return folder


def test_every_request_is_answered_in_full_over_http_and_in_process(out: Path) -> None:
    measurements = load(out / FILE).measurements

    assert [(one.server, one.workload, len(one.answers)) for one in measurements] == [
        ("headrace", "c1", 1),
        ("headrace", "c8", 8),
        ("headrace", "batch", 24),
        ("headrace in turns", "c1", 1),
        ("engine in process", "c1", 1),
    ]
    assert {
        (one.workload, answer.failure, answer.num_output_tokens) for one in measurements for answer in one.answers
    } == {("c1", "", 16), ("c8", "", 16), ("batch", "", 64)}
    assert all(one.pss_bytes > 2**20 for one in measurements if one.server == "headrace")


def test_the_table_is_printed_and_kept_with_peers_reported_as_absent(out: Path) -> None:
    text = (out / "results.md").read_text()

    assert (out / "printed").read_text() == text + "\n"
    assert re.findall(
        r"^\| (headrace.*?|engine in process) \| (c\d+) \| (\d+/\d+) \| 16\.0 \|", text, re.MULTILINE
    ) == [
        ("headrace", "c1", "1/0"),
        ("headrace", "c8", "8/0"),
        ("headrace in turns", "c1", "1/0"),
        ("engine in process", "c1", "1/0"),
    ]
    assert re.findall(r"^\| headrace \| batch \| 24/0 \| 64\.0 \| (.*?)\d", text, re.MULTILINE) == ["**"]
    assert re.findall(r"^\| engine in process, (batch \d+) \|", text, re.MULTILINE) == [
        "batch 32",
        "batch 8",
        "batch 1",
    ]
    assert re.findall(r"^\| (decode, \d+) \|", text, re.MULTILINE) == ["decode, 1", "decode, 8", "decode, 32"]
    assert re.findall(r"^- Absent: (.*): (\w+)='/nowhere' is no program$", text, re.MULTILINE) == [
        (peer.name, peer.variable) for peer in PEERS.values() if " " not in peer.name
    ]
    assert "reads " in text


def test_the_picture_shows_the_servers(out: Path) -> None:
    picture = (out / "results.svg").read_text()

    assert picture.startswith("<svg ")
    assert ">headrace<" in picture
