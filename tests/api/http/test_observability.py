"""Metrics are exact over all processes, every line of a log is JSON, and no API process holds torch."""

import json
import re
from collections import Counter
from pathlib import Path

import psutil

from tests.api.http.client import CHAT, COMPLETIONS, answered, chat_body, completion_body, get, post, streamed
from tests.api.http.conftest import Servers
from tests.api.http.raw import RawConnection, request
from tests.api.http.reciter import RECITER
from tests.processes import wait_until
from tests.stack import WebServer
from tests.streams import StreamReader

API_METRICS = {
    "headrace_queue_depth": "gauge",
    "headrace_queue_tokens": "gauge",
    "headrace_jobs_running": "gauge",
    "headrace_workers": "gauge",
    "headrace_time_to_first_token_seconds": "histogram",
    "headrace_inter_token_latency_seconds": "histogram",
    "headrace_requests_admitted_total": "counter",
    "headrace_requests_refused_total": "counter",
    "headrace_requests_ended_total": "counter",
    "headrace_relayed_tokens_total": "counter",
    "headrace_websockets_open": "gauge",
}


def scraped(server: WebServer) -> tuple[dict[str, str], Counter[str]]:
    """The types by name, and the values by name and labels."""
    text = get(server, "/metrics", Connection="close").text  # a new connection may come to another process
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return types, Counter({name: float(value) for name, value in lines})


def in_a_new_connection(server: WebServer, path: str, body: dict[str, object]) -> int:
    with RawConnection(server) as connection:
        data = request("POST", path, json.dumps(body).encode(), "Connection: close")
        return connection.send(data).response()[0].status


def test_the_counters_are_exact_over_both_processes(server: WebServer) -> None:
    before = scraped(server)[1]
    statuses = [in_a_new_connection(server, COMPLETIONS, completion_body([7, 8, 9], 5)) for _ in range(7)]
    statuses += [in_a_new_connection(server, CHAT, chat_body(num_tokens=2, stream=True)) for _ in range(4)]
    statuses += [in_a_new_connection(server, CHAT, chat_body(use_beam_search=True)) for _ in range(3)]
    statuses += [in_a_new_connection(server, CHAT, chat_body(model="x")) for _ in range(2)]
    statuses += [in_a_new_connection(server, CHAT, chat_body("long " * 400))]
    assert statuses == [200] * 11 + [400] * 3 + [404] * 2 + [400]
    per_chat = answered(server, CHAT, chat_body(num_tokens=2))["usage"]["prompt_tokens"]
    after = scraped(server)[1]
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    names = ("requests_", "relayed_tokens", "time_to_first_token_seconds_count")
    assert {name: value for name, value in grown.items() if name.removeprefix("headrace_").startswith(names)} == {
        'headrace_requests_admitted_total{endpoint="completions"}': 7,
        'headrace_requests_admitted_total{endpoint="chat.completions"}': 5,
        'headrace_requests_refused_total{reason="unsupported_parameter"}': 3,
        'headrace_requests_refused_total{reason="model_not_found"}': 2,
        'headrace_requests_refused_total{reason="context_length_exceeded"}': 1,
        'headrace_requests_ended_total{state="succeeded"}': 12,
        'headrace_relayed_tokens_total{kind="prompt"}': 7 * 3 + 5 * per_chat,
        'headrace_relayed_tokens_total{kind="completion"}': 7 * 5 + 5 * 2,
        "headrace_time_to_first_token_seconds_count": 12,
    }
    counted = [name for name in grown if re.search("_total|_seconds_", name)]  # gauges move by themselves
    for _ in range(4):  # whichever process answers
        again = scraped(server)[1]
        assert {name: again[name] for name in counted} == {name: after[name] for name in counted}


def test_every_metric_of_the_api_is_there_with_its_type(server: WebServer) -> None:
    answered(server, COMPLETIONS, completion_body("x", 2))
    assert post(server, COMPLETIONS, b"{").status_code == 400
    types, values = scraped(server)
    # A counter's type stands there without the ending when another library version writes it.
    assert {name: types.get(name, types.get(name.removesuffix("_total"))) for name in API_METRICS} == API_METRICS
    assert values['headrace_queue_depth{class="interactive"}'] == 0
    assert values['headrace_queue_tokens{class="batch"}'] == 0
    assert values["headrace_workers"] == 1


def test_a_client_that_leaves_is_counted_as_a_cancellation(tiny: WebServer) -> None:
    def num_cancelled() -> float:
        return scraped(tiny)[1]['headrace_requests_cancelled_total{cause="client_gone"}']

    before = num_cancelled()
    StreamReader(tiny.url, CHAT, chat_body(num_tokens=4000, model="tiny")).wait_for_chunks(2).hang_up()
    wait_until(lambda: num_cancelled() == before + 1, "the cancellation is counted")


def test_the_pages_of_a_worker_are_all_free_when_it_is_idle(servers: Servers, server: WebServer) -> None:
    answered(server, COMPLETIONS, completion_body("x", 40))
    wait_until(lambda: servers.stack.worker_pages(servers.worker)["held"] == 0, "no page is held")
    pages = servers.stack.worker_pages(servers.worker)
    assert set(pages) == {"free", "held", "cached"}
    (total,) = re.findall(r"ready: (\d+) KV pages", servers.worker.log_text())
    assert pages["free"] + pages["cached"] == int(total)


def test_every_line_of_every_log_is_json_with_a_job_id(servers: Servers, server: WebServer) -> None:
    job_id = streamed(server, CHAT, chat_body()).job_id
    with RawConnection(server) as connection:
        assert connection.send(b"NONSENSE\r\n\r\n").error()[0] == 400
    servers_own = [web.process.log_text() for web in servers.stack.webs]
    for log in [*servers_own, servers.worker.log_text()]:
        lines = [json.loads(line) for line in log.splitlines()]
        assert lines
        assert all({"time", "level", "logger", "message", "job_id"} <= set(line) for line in lines)
    of_job = [line for line in map(json.loads, server.process.log_text().splitlines()) if line["job_id"] == job_id]
    assert [line["message"] for line in of_job] == ["job admitted", "stream ended"]
    assert any("bad request" in line for line in servers_own[0].splitlines())


def test_no_api_process_that_served_a_chat_holds_torch(servers: Servers, server: WebServer) -> None:
    for _ in range(8):  # both processes
        assert in_a_new_connection(server, CHAT, chat_body(num_tokens=1)) == 200
    processes = family(server.process.pid)
    assert len(processes) >= 3
    assert not any("libtorch" in Path(f"/proc/{process.pid}/maps").read_text() for process in processes)
    of_worker = family(servers.worker.pid)
    assert any("libtorch" in Path(f"/proc/{process.pid}/maps").read_text() for process in of_worker)


def family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def test_readiness_names_the_model_and_its_workers(server: WebServer) -> None:
    ready = get(server, "/readyz").json()
    assert (ready["status"], ready["model"], len(ready["workers"]), ready["queue_depth"]) == ("ready", RECITER, 1, 0)
