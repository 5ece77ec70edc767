"""Settings of the worker process, read once from the environment or headrace.toml."""

from dataclasses import dataclass

from worker.protocol.configuration import setting


@dataclass(frozen=True)
class WorkerSettings:
    redis_url: str = setting("REDIS_URL", "redis://127.0.0.1:8006/0", "Redis or Valkey that holds the queue")
    celery_broker_url: str = setting(
        "CELERY_BROKER_URL", "", "broker of control messages and batch tasks, as a kombu URL; empty means REDIS_URL"
    )
    model: str = setting("MODEL", "", "model folder or hub id; empty means the default model")
    model_name: str = setting(
        "MODEL_NAME", "", "name under which the model is served; empty: from the folder or hub id"
    )
    device: str = setting("DEVICE", "auto", "torch device: auto, cpu, cuda, cuda:1 ...")
    dtype: str = setting(
        "DTYPE",
        "auto",
        "auto, float32 or bfloat16; auto: as stored, but on plain torch only what the device computes fast",
    )
    quantization: str = setting("QUANTIZATION", "none", "weights on the CPU: none, int8 or int4; with our own kernels")
    cpu_kernels: str = setting(
        "CPU_KERNELS", "auto", "our own CPU kernels: auto, amx, avx512bf16, avx512, avx2, or none for plain torch"
    )
    threads: int = setting(
        "THREADS", 0, "compute threads of a worker on the CPU; 0 means one per core", at_least=0, at_most=1024
    )
    page_size: int = setting("PAGE_SIZE", 32, "tokens a KV page holds", at_least=1)
    kv_memory_gib: float = setting(
        "KV_MEMORY_GIB",
        0.0,
        "memory of the KV pages; 0: 2 GiB on the CPU, else 80 % of the free device memory",
        at_least=0,
    )
    max_sequences: int = setting("MAX_SEQUENCES", 64, "sequences that run together in one step", at_least=1)
    step_tokens: int = setting(
        "STEP_TOKENS", 512, "tokens one step may compute; longer prompts are prefilled in chunks", at_least=1
    )
    backfill_slowdown: float = setting(
        "BACKFILL_SLOWDOWN",
        0.1,
        "share by which batch work may slow interactive work down; 0: it waits until there is none",
        at_least=0,
        at_most=10,
    )
    policy: str = setting(
        "POLICY", "continuous", "continuous, or static: a batch runs to its end before the next begins (to compare)"
    )
    prefix_cache: bool = setting(
        "PREFIX_CACHE", True, "keep the KV pages of past prompts and answers for later ones that begin alike"
    )
    max_context: int = setting(
        "MAX_CONTEXT", 0, "longest prompt plus answer in tokens; 0 means what the model says", at_least=0
    )
    lease_s: float = setting("LEASE_S", 5.0, "a worker silent for so long loses its jobs to another", at_least=0.5)
    step_limit_s: float = setting("STEP_LIMIT_S", 120.0, "a worker whose step takes longer counts as stuck", at_least=1)
    grace_s: float = setting(
        "WORKER_GRACE_S", 30.0, "time to finish running jobs on SIGTERM; the rest goes back to the queue", at_least=0
    )
    metrics_port: int = setting(
        "WORKER_METRICS_PORT",
        8001,
        "port of the worker's /metrics on loopback; 0 means any free port, -1 none",
        at_least=-1,
        at_most=65535,
    )
    max_attempts: int = setting(
        "MAX_ATTEMPTS", 3, "a job fails once so many deaths of workers in a row are put down to it", at_least=1
    )
    log_level: str = setting("LOG_LEVEL", "info", "debug, info, warning or error")
