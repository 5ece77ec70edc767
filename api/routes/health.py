"""Liveness (this process runs) apart from readiness (a request sent now would be served), and the metrics."""

from typing import Any

from flask import Blueprint, Response

from api.batch.batch_metrics import BatchCollector
from api.pipeline.admission import ready_workers
from api.services import services

routes = Blueprint("health", __name__)


@routes.get("/livez")
def livez() -> dict[str, str]:
    return {"status": "alive"}


@routes.get("/readyz")
def readyz() -> dict[str, Any]:
    """503 while the broker is away or no worker with a live lease takes jobs."""
    shared = services()
    snapshot = shared.admission.snapshot()
    ready = ready_workers(snapshot)
    return {
        "status": "ready",
        "model": shared.model.name,
        "workers": [{"name": worker.name, "step_age_s": worker.step_age_s} for worker in ready],
        "queue_depth": sum(snapshot.depth.values()),
    }


@routes.get("/health")
def health() -> dict[str, Any]:
    """What vLLM calls readiness."""
    return readyz()


@routes.get("/metrics")
def metrics() -> Response:
    shared = services()
    text = shared.metrics.render(shared.queue, BatchCollector(shared.batches))
    return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")
