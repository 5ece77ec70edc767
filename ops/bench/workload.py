"""Workloads: how many clients ask at once, how long the prompts are, how long the answers."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ops.bench.prompts import make_prompts

QUICK_DIVISOR = 8
LINE_TOKENS = 64  # of a batch's line, in and out


@dataclass(frozen=True)
class Question:
    """One request of a workload; its answer has exactly `max_tokens` tokens where the model never ends by itself."""

    text: str
    max_tokens: int


@dataclass(frozen=True)
class Workload:
    """A closed loop: `concurrency` clients, each of which asks again as soon as it has its answer.

    `max_tokens` are the shortest and the longest answer; lengths in between are drawn evenly. `batch_lines`: the lines
    of a batch that is underway meanwhile, or of one that is measured alone where there are no requests.
    """

    name: str
    meaning: str
    concurrency: int
    num_requests: int
    prompt_tokens: int
    max_tokens: tuple[int, int]
    shared_tokens: int = 0
    batch_lines: int = 0

    def questions(self, seed: int) -> list[Question]:
        """The requests. Another seed gives other prompts, which no prefix cache has seen."""
        prompts = make_prompts(self.num_requests, self.prompt_tokens, self.shared_tokens, seed)
        lengths = random.Random(seed)
        return [Question(prompt, lengths.randint(*self.max_tokens)) for prompt in prompts]

    def lines(self, seed: int) -> list[Question]:
        """The requests of the batch."""
        prompts = make_prompts(self.batch_lines, LINE_TOKENS, 0, seed)
        return [Question(prompt, LINE_TOKENS) for prompt in prompts]

    def quick(self) -> "Workload":
        """The same at an eighth of the lengths, with one request a client: shows that it runs, proves little."""
        shortest, longest = self.max_tokens
        return replace(
            self,
            num_requests=min(self.concurrency, self.num_requests),
            batch_lines=self.batch_lines // QUICK_DIVISOR,
            prompt_tokens=self.prompt_tokens // QUICK_DIVISOR,
            shared_tokens=self.shared_tokens // QUICK_DIVISOR,
            max_tokens=(shortest // QUICK_DIVISOR, longest // QUICK_DIVISOR),
        )


# Numbers of requests are those of one round.
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("c1", "1 client, 256 tokens in, 128 out", 1, 3, 256, (128, 128)),
        Workload("c8", "8 clients, 256 in, 128 out", 8, 8, 256, (128, 128)),
        Workload("c32", "32 clients, 256 in, 128 out", 32, 32, 256, (128, 128)),
        Workload("long", "8 clients, 1500 in, 64 out", 8, 8, 1500, (64, 64)),
        Workload("shared", "16 clients, 1024 shared and 64 own in, 64 out", 16, 32, 64, (64, 64), 1024),
        Workload("brief", "1 client, 64 in, 8 out", 1, 20, 64, (8, 8)),
        Workload("mixed", "16 clients, 64 in, 8 to 128 out", 16, 32, 64, (8, 128)),
        Workload("c4", "4 clients, 256 in, 128 out", 4, 24, 256, (128, 128)),
        Workload("beside", "the same beside a batch of 500 lines", 4, 24, 256, (128, 128), batch_lines=500),
        Workload("plain32", "32 clients, 64 in, 64 out", 32, 192, LINE_TOKENS, (LINE_TOKENS, LINE_TOKENS)),
        Workload("plain64", "64 clients, 64 in, 64 out", 64, 192, LINE_TOKENS, (LINE_TOKENS, LINE_TOKENS)),
        Workload("batch", "a batch of 192 lines, 64 in, 64 out", 64, 0, 0, (0, 0), batch_lines=192),
    )
}
BASIC = ("c1", "c8", "c32")
COMPARED = (*BASIC, "long", "shared")  # with peers; mixed lengths compare policies, brief ones serving with the engine
WARM_UP = Question("Say anything at all.", 8)


def selected(names: Iterable[str], *, is_quick: bool) -> list[Workload]:
    """The workloads of these names, in this order. Raises KeyError."""
    return [WORKLOADS[name].quick() if is_quick else WORKLOADS[name] for name in names]
