"""The soak itself: tellers tell stories while havoc strikes, then everything must be whole and clean."""

import dataclasses
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass

from tests.soak.audit import wait_until_clean
from tests.soak.havoc import Havoc
from tests.soak.story import END_S, Question, Storyteller
from tests.stack import Stack
from tests.streams import chat

SETTINGS = {
    "HEADRACE_DTYPE": "auto",
    "HEADRACE_LEASE_S": "2",
    "HEADRACE_WATCHER_GRACE_S": "6",
    "HEADRACE_RESUME_GRACE_S": "10",
    "HEADRACE_RETENTION_S": "3",
    "HEADRACE_PING_S": "0.5",
    "HEADRACE_WORKER_GRACE_S": "1",
    "HEADRACE_MAX_ATTEMPTS": "1000",  # here a job is unlucky, never poisonous
    "HEADRACE_MAX_WAIT_S": "600",
}
LONGEST_PAUSE_S = 3.0  # past the end of a lease, short of the watchers' grace
PAUSE_S = 0.1  # of a client between two requests
NUM_QUESTIONS = 6
LENGTHS = (5, 40, 150)  # tokens


@dataclass(frozen=True)
class Plan:
    """How hard the soak is: `strike_every_s` is the mean time between two misfortunes."""

    seed: int
    duration_s: float
    num_clients: int
    strike_every_s: float = 2.0


@dataclass(frozen=True)
class Findings:
    endings: Counter[str]
    strikes: Counter[str]
    faults: list[str]


def soak(stack: Stack, plan: Plan) -> Findings:
    """Torment a started stack. Raises AssertionError when it does not come to rest afterwards."""
    questions = asked_in_peace(stack)
    tellers = [Storyteller(f"{plan.seed}-{i}", lambda: urls(stack), questions) for i in range(plan.num_clients)]
    havoc = Havoc(stack, f"{plan.seed}-havoc", LONGEST_PAUSE_S)
    is_over = threading.Event()
    threads = [threading.Thread(target=_tell, args=(teller, is_over), daemon=True) for teller in tellers]
    for thread in threads:
        thread.start()
    _strike(havoc, plan)
    is_over.set()
    stack.mend()
    _join(threads, tellers)
    wait_until_clean(stack, deadline_s=120.0)
    endings = sum((teller.endings for teller in tellers), Counter[str]())
    faults = [fault for teller in tellers for fault in teller.faults]
    return Findings(endings, havoc.counts, [*faults, *deaths(stack)])


def asked_in_peace(stack: Stack) -> list[Question]:
    """Questions with the answers of an undisturbed stack."""
    questions = [Question(f"Tell me about the number {i}.", length) for i in range(NUM_QUESTIONS) for length in LENGTHS]
    readers = [chat(stack.url, question.body) for question in questions]
    return [
        dataclasses.replace(question, answer=reader.wait_for_end().text)
        for question, reader in zip(questions, readers, strict=True)
    ]


def urls(stack: Stack) -> list[str]:
    return [web.url for web in stack.webs]


def deaths(stack: Stack) -> list[str]:
    """Workers that died of themselves: killed, told to end while starting, or ended in order is something else."""
    return [
        f"{worker.log.name} died with {worker.exit_code}:\n{worker.last_lines()}"
        for worker in stack.workers
        if worker.exit_code not in (None, 0, -signal.SIGKILL, -signal.SIGTERM)
    ]


def _tell(teller: Storyteller, is_over: threading.Event) -> None:
    while not is_over.is_set():
        teller.tell()
        is_over.wait(PAUSE_S)


def _strike(havoc: Havoc, plan: Plan) -> None:
    pauses = random.Random(f"{plan.seed}-pauses")
    give_up_at = time.monotonic() + plan.duration_s
    while time.monotonic() < give_up_at:
        time.sleep(pauses.uniform(0, 2 * plan.strike_every_s))
        havoc.strike()


def _join(threads: list[threading.Thread], tellers: list[Storyteller]) -> None:
    give_up_at = time.monotonic() + END_S
    for thread, teller in zip(threads, tellers, strict=True):
        thread.join(max(0.0, give_up_at - time.monotonic()))
        if thread.is_alive():
            teller.faults.append("a request did not end")
