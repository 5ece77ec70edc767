"""The worker's Prometheus metrics, served on loopback."""

import socket
import threading
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from worker.engine.stats import EngineStats
from worker.protocol.configuration import BadSetting

_STEP_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)


class WorkerMetrics:
    """Names follow vLLM's where it has the same quantity."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge, counter = self._gauge, self._counter
        self._running = gauge("num_requests_running", "Sequences with KV pages")
        self._waiting = gauge("num_requests_waiting", "Sequences of claimed jobs that wait for KV pages")
        self._pages = Gauge("headrace_kv_pages", "KV pages by what holds them", ["state"], registry=self.registry)
        self._usage = gauge("kv_cache_usage_ratio", "Share of the KV pages that are held")
        self._prompt_tokens = counter("prompt_tokens", "Prompt tokens computed")
        self._generated_tokens = counter("generation_tokens", "Tokens generated")
        self._preemptions = counter("num_preemptions", "Sequences preempted")
        self._prefix_queries = counter("prefix_cache_queries", "Prompt tokens looked for in the prefix cache")
        self._prefix_hits = counter("prefix_cache_hits", "Prompt tokens found in the prefix cache, so not computed")
        self._counted = (0,) * 5
        self.num_claimed = counter("jobs_claimed", "Jobs claimed from the queue")
        self.num_dropped = counter("jobs_dropped", "Jobs dropped because they were cancelled or owned elsewhere")
        self.num_finished = Counter(
            "headrace_jobs_finished", "Jobs ended here by state", ["state"], registry=self.registry
        )
        self.num_moved = Counter(
            "headrace_queue_moves", "Jobs moved by the queue's clock, by rule", ["rule"], registry=self.registry
        )
        self.step_seconds = Histogram(
            "headrace_step_seconds", "Duration of an engine step", buckets=_STEP_BUCKETS, registry=self.registry
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"headrace_{name}", text, registry=self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"headrace_{name}", text, registry=self.registry)

    def observe(self, stats: EngineStats) -> None:
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        self._pages.labels("free").set(stats.num_free_pages)
        self._pages.labels("held").set(stats.num_held_pages)
        self._pages.labels("cached").set(stats.num_cached_pages)
        self._usage.set(stats.num_held_pages / stats.num_pages)
        totals = (
            stats.num_prompt_tokens_total, stats.num_generated_tokens_total, stats.num_preemptions_total,
            stats.num_prefix_queried_tokens_total, stats.num_prefix_hit_tokens_total,
        )  # fmt: skip
        counters = (
            self._prompt_tokens, self._generated_tokens, self._preemptions, self._prefix_queries, self._prefix_hits,
        )  # fmt: skip
        for metric, total, counted in zip(counters, totals, self._counted, strict=True):
            metric.inc(total - counted)
        self._counted = totals

    def serve(self, port: int) -> tuple[WSGIServer, threading.Thread] | None:
        """Serve /metrics on loopback; port 0 means any free one, -1 none. Raises BadSetting when the port is taken."""
        if port < 0:
            return None
        try:
            return start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except (OSError, OverflowError) as error:
            advice = "each worker of a host needs a port of its own, or 0 for any free one"
            raise BadSetting(f"HEADRACE_WORKER_METRICS_PORT={port}: {error}; {advice}") from error


def port_of(server: WSGIServer) -> int:
    address: Any = server.socket.getsockname() if isinstance(server.socket, socket.socket) else server.server_address
    return int(address[1])
