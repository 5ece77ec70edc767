"""What an API process holds for all its requests. Built before gunicorn forks: connects to nothing yet."""

from dataclasses import dataclass

from flask import current_app, request

from api.auth import ApiKeys, credentials, parse_api_keys
from api.batch.files import FileBook
from api.batch.storage import Storage, open_storage
from api.batch.store import BatchStore
from api.metrics import ApiMetrics
from api.pipeline.admission import AdmissionControl
from api.pipeline.served_model import ServedModel
from api.pipeline.storage_threads import StorageThreads
from api.pipeline.upload import Uploads
from api.relay.caretaker import Caretaker
from api.relay.client_watch import ClientWatch
from api.relay.job_stream import Relay
from api.relay.subscriber import Subscriber
from api.relay.websocket_registry import WebSocketRegistry
from api.responses.store import ResponseStore
from api.settings import ApiSettings
from worker.protocol.connection import check_access, connect
from worker.protocol.queue import JobQueue

_STORAGE_THREADS = 4  # uploads and downloads that may ask the storage at one moment


@dataclass(frozen=True)
class Services:
    settings: ApiSettings
    model: ServedModel
    keys: ApiKeys
    queue: JobQueue
    admission: AdmissionControl
    relay: Relay
    caretaker: Caretaker
    websockets: WebSocketRegistry
    responses: ResponseStore
    storage: Storage
    storage_threads: StorageThreads
    files: FileBook
    uploads: Uploads
    batches: BatchStore
    metrics: ApiMetrics


def build_services(settings: ApiSettings, model: ServedModel) -> Services:
    """Raises BadSetting."""
    check_access(settings.redis_url)
    client = connect(settings.redis_url)
    queue = JobQueue(client, model.name)
    storage = open_storage(settings, model.name)
    files, threads = FileBook(client, model.name, storage), StorageThreads(_STORAGE_THREADS)
    metrics = ApiMetrics()
    subscriber = Subscriber(lambda: connect(settings.redis_url), model.name)
    return Services(
        settings=settings,
        model=model,
        keys=parse_api_keys(settings.api_keys),
        queue=queue,
        admission=AdmissionControl(queue, settings),
        relay=Relay(queue, subscriber, ClientWatch(), settings, metrics),
        caretaker=Caretaker(queue, subscriber, settings, metrics),
        websockets=WebSocketRegistry(settings.ws_max_connections, metrics.websockets),
        responses=ResponseStore(client, model.name, settings.response_ttl_s, settings.response_store_mb << 20),
        storage=storage,
        storage_threads=threads,
        files=files,
        uploads=Uploads(files, storage, threads, settings),
        batches=BatchStore(client, model.name),
        metrics=metrics,
    )


def services() -> Services:
    """The services of the app that handles the current request."""
    found: Services = current_app.extensions["headrace"]
    return found


def tenant_of_request() -> str:
    """Whose key the current request carries. Raises ApiError 401."""
    found = credentials(request.headers.get("Authorization"), request.headers.get("x-api-key"))
    return services().keys.tenant_of(found)
