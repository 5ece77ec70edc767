"""A worker that dies, as by a bug in a kernel, when it computes a prompt that holds the word poison."""

import os
import signal
import sys

from transformers import AutoTokenizer

import worker.__main__ as entry
from worker.engine.engine import Engine, JobOutput

POISON = "poison"


def poison(engine_class: type[Engine], poison_ids: set[int]) -> None:
    """From the second step on with such a job the process dies: the job has produced something by then."""
    healthy_step = engine_class.step

    def step(self: Engine) -> list[JobOutput]:
        outputs = healthy_step(self)
        for held in self._jobs.values():
            sequences = held.sequences
            if sequences[0].num_generated >= 2 and poison_ids <= set(held.job.prompts[0]):
                os.kill(os.getpid(), signal.SIGKILL)
        return outputs

    engine_class.step = step  # type: ignore[method-assign]


if __name__ == "__main__":
    tokenizer = AutoTokenizer.from_pretrained(os.environ["HEADRACE_MODEL"])
    poison(Engine, set(tokenizer(POISON, add_special_tokens=False)["input_ids"]))
    sys.exit(entry.main())
