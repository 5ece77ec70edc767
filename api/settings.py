"""Settings of the API process, read once from the environment or headrace.toml."""

from dataclasses import dataclass

from worker.protocol.configuration import setting


@dataclass(frozen=True)
class ApiSettings:
    redis_url: str = setting("REDIS_URL", "redis://127.0.0.1:8006/0", "Redis or Valkey that holds the queue")
    model: str = setting("MODEL", "", "model folder or hub id; empty means the default model")
    model_name: str = setting(
        "MODEL_NAME", "", "name under which the model is served; empty: from the folder or hub id"
    )
    model_aliases: str = setting("MODEL_ALIASES", "", "more names for the model, comma-separated")
    max_context: int = setting(
        "MAX_CONTEXT", 0, "longest prompt plus answer in tokens; 0 means what the model says", at_least=0
    )
    host: str = setting("HOST", "127.0.0.1", "address the API listens on")
    port: int = setting("PORT", 8000, "port the API listens on", at_least=0, at_most=65535)
    web_processes: int = setting("WEB_PROCESSES", 2, "API processes", at_least=1, at_most=1024)
    max_connections: int = setting("MAX_CONNECTIONS", 2000, "connections one API process holds", at_least=1)
    tokenizer_threads: int = setting(
        "TOKENIZER_THREADS", 2, "native threads for tokenizing in one API process", at_least=1
    )
    max_body_bytes: int = setting("MAX_BODY_BYTES", 4 * 1024 * 1024, "largest request body", at_least=1)
    body_timeout_s: float = setting(
        "BODY_TIMEOUT_S", 30.0, "a request body must have arrived after so long", at_least=0.1
    )
    queue_depth: int = setting("QUEUE_DEPTH", 512, "interactive jobs that may wait", at_least=0)
    queue_tokens: int = setting("QUEUE_TOKENS", 2_000_000, "tokens of the interactive jobs that may wait", at_least=1)
    tenant_tokens: int = setting(
        "TENANT_TOKENS", 2_000_000, "tokens one tenant may have waiting and running", at_least=1
    )
    max_wait_s: float = setting("MAX_WAIT_S", 120.0, "a job estimated to wait longer is refused", at_least=1)
    expected_tokens: int = setting(
        "EXPECTED_TOKENS", 512, "answer length a job is counted for when it allows more", at_least=1
    )
    timeout_s: float = setting(
        "TIMEOUT_S", 600.0, "longest time from admission to the end; a request may ask for less", at_least=1
    )
    watcher_grace_s: float = setting(
        "WATCHER_GRACE_S", 10.0, "a job whose API process is gone for so long is cancelled", at_least=1
    )
    resume_grace_s: float = setting(
        "RESUME_GRACE_S", 60.0, "a resumable stream goes on without its client for so long", at_least=1
    )
    retention_s: float = setting("RETENTION_S", 300.0, "a finished job can be resumed or read for so long", at_least=1)
    response_ttl_s: float = setting(
        "RESPONSE_TTL_S", 86400.0, "a response that is stored can be read or continued for so long", at_least=1
    )
    response_store_mb: int = setting(
        "RESPONSE_STORE_MB", 128, "memory for stored responses in Redis; one tenant gets at most half", at_least=1
    )
    data: str = setting(
        "DATA", "", "folder of the embedded broker and of stored files; empty means headrace in the user's data folder"
    )
    storage: str = setting(
        "STORAGE", "", "where stored files lie: a folder or fsspec's URL of one, as s3://bucket/x; empty: files in DATA"
    )
    max_file_bytes: int = setting("MAX_FILE_BYTES", 200 * 1024 * 1024, "largest file of /v1/files", at_least=1)
    storage_tenant_bytes: int = setting(
        "STORAGE_TENANT_BYTES", 10 * 1024**3, "bytes of stored files one tenant may have", at_least=1
    )
    grace_s: float = setting("WEB_GRACE_S", 630.0, "time to finish open streams on shutdown", at_least=0)
    lease_s: float = setting("LEASE_S", 5.0, "a worker silent for so long loses its jobs to another", at_least=0.5)
    max_attempts: int = setting(
        "MAX_ATTEMPTS", 3, "a job fails once so many deaths of workers in a row are put down to it", at_least=1
    )
    stall_timeout_s: float = setting(
        "STALL_TIMEOUT_S", 30.0, "a client that reads nothing for so long is cut off", at_least=1
    )
    ping_s: float = setting("PING_S", 10.0, "a quiet stream gets a keep-alive comment so often", at_least=0.1)
    api_keys: str = setting("API_KEYS", "", "accepted API keys as key or key=tenant, comma-separated; empty means open")
    cors_origins: str = setting("CORS_ORIGINS", "*", "origins for CORS and WebSockets, comma-separated; * means any")
    allowed_hosts: str = setting(
        "ALLOWED_HOSTS", "", "Host names WebSocket clients may use, comma-separated; empty means any"
    )
    ws_max_message_bytes: int = setting(
        "WS_MAX_MESSAGE_BYTES", 4 * 1024 * 1024, "largest WebSocket message", at_least=1
    )
    ws_max_requests: int = setting("WS_MAX_REQUESTS", 64, "requests one WebSocket runs at once", at_least=1)
    ws_max_connections: int = setting("WS_MAX_CONNECTIONS", 500, "WebSockets one API process holds", at_least=1)
    ws_max_age_s: float = setting(
        "WS_MAX_AGE_S", 3600.0, "a WebSocket of /v1/responses is closed after so long", at_least=1
    )
    log_level: str = setting("LOG_LEVEL", "info", "debug, info, warning or error")
