"""Settings of the commands that start Headrace: the supervisor and the embedded broker."""

from dataclasses import dataclass

from worker.protocol.configuration import setting


@dataclass(frozen=True)
class OpsSettings:
    redis_url: str = setting("REDIS_URL", "", "Redis or Valkey to use; empty means the embedded broker")
    broker_port: int = setting(
        "BROKER_PORT", 8006, "port of the embedded broker on loopback; 0: any free one", at_least=0, at_most=65535
    )
    broker_memory_mb: int = setting(
        "BROKER_MEMORY_MB", 512, "memory the embedded broker may fill; then jobs are refused", at_least=16
    )
    data: str = setting(
        "DATA", "", "folder of the embedded broker and of stored files; empty means headrace in the user's data folder"
    )


@dataclass(frozen=True)
class ClientSettings:
    url: str = setting("URL", "http://127.0.0.1:8000", "server that `headrace batch` asks")
    api_key: str = setting("API_KEY", "", "key that `headrace batch` sends")
