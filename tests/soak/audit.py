"""What must be left of a stack at rest: nothing that a request has held."""

from typing import Any, cast

import redis

from tests.processes import wait_until
from tests.stack import Stack

# What a pool has of its own, however many requests it has served.
LASTING = frozenset({"counters", "drain", "bell:0", "bell:1", "workers"})


def wait_until_clean(stack: Stack, deadline_s: float, pool: str = "tiny") -> None:
    """Raises AssertionError that names what is still there after `deadline_s`."""
    try:
        wait_until(lambda: leftovers(stack, pool) == [], "everything to be given back", deadline_s)
    except TimeoutError:
        raise AssertionError(f"left behind: {leftovers(stack, pool)}") from None


def leftovers(stack: Stack, pool: str) -> list[str]:
    """Keys, counts and pages that some request still holds."""
    prefix, client = f"headrace:{{{pool}}}:", stack.redis()
    return [*_keys(client, prefix), *_counts(client, prefix), *_pages(stack)]


def _keys(client: redis.Redis, prefix: str) -> list[str]:
    live = {name.decode() for name in cast(list[bytes], client.zrange(prefix + "workers", 0, -1))}
    lasting = LASTING | {f"worker:{name}" for name in live}
    names = [key.decode().removeprefix(prefix) for key in client.scan_iter(prefix + "*", count=1000)]
    return sorted(set(names) - lasting)


def _counts(client: redis.Redis, prefix: str) -> list[str]:
    counters: Any = client.hgetall(prefix + "counters")
    return [
        f"{name.decode()}={number.decode()}"
        for name, number in sorted(counters.items())
        if name.startswith((b"depth", b"tokens", b"running")) and number != b"0"
    ]


def _pages(stack: Stack) -> list[str]:
    found = []
    for worker in [worker for worker in stack.workers if worker.exit_code is None]:
        if "worker ready" not in worker.log_text():
            found.append(f"{worker.log.name} is still starting")
        elif num_held := stack.worker_pages(worker).get("held"):
            found.append(f"{worker.log.name} holds {num_held:g} pages")
    return found
