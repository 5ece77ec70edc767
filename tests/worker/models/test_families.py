"""Every family of models whose state is attention alone says what transformers itself says, on torch and kernels."""

import random
from typing import Any

import pytest
import torch

from tests.worker.engine.doubles import Collected, LetterDetokenizer, make_job, run
from tests.worker.kernels.native import ISA_NAMES, kernels_of
from tests.worker.models.families import FAMILIES, VOCAB_SIZE, config_of, make_network, own_greedy
from worker.engine.engine import Engine, EngineConfig
from worker.models.generic import GenericModel
from worker.models.packing import Precision, packed_model

NUM_TOKENS = 12


def model_on(room: str, network: Any) -> GenericModel:
    if room == "torch":
        return GenericModel(network, page_size=4)
    return packed_model(network, kernels_of(room), 4, Precision(torch.float32, "none"))


@pytest.mark.parametrize("room", ["torch", *ISA_NAMES])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_served_in_a_crowded_batch_gives_transformers_own_greedy_answers(family: str, room: str) -> None:
    network = make_network(config_of(family))
    dice = random.Random(family)
    prompts = [[dice.randrange(3, VOCAB_SIZE) for _ in range(length)] for length in (1, 9, 14, 23)]
    expected = [own_greedy(network, prompt, NUM_TOKENS) for prompt in prompts]
    model = model_on(room, network)
    model.allocate(14)  # too few for all: someone is preempted
    engine = Engine(model, LetterDetokenizer, EngineConfig(4, 14, 4, 10, 56))
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS) for prompt in prompts]
    collected = Collected()
    for job in jobs:
        engine.add(job)
        collected.take(engine.step())
    run(engine, collected)
    assert [collected.token_ids(job) for job in jobs] == expected
    assert len({tuple(answer) for answer in expected}) == len(prompts)
