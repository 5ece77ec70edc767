"""The lean decoder says what transformers' own code says, for every family and trait it claims."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.worker.engine.doubles import Collected, LetterDetokenizer, make_job, run
from tests.worker.models.families import SIZES, VOCAB_SIZE, WINDOW, make_network, own_greedy
from tests.worker.models.lean import PAGE_SIZE, lean_decoder, logits_of, model_folder
from worker.engine.engine import Engine, EngineConfig

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
ODD = {"intermediate_size": 40, "head_dim": 20, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 36}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("Llama", {}),
    "Llama, every bias": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "Llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "Llama, odd sizes": ("Llama", ODD),
    "Llama, one kv head": ("Llama", {"num_key_value_heads": 1}),
    "Llama, llama3 rope": ("Llama", {"rope_parameters": LLAMA3}),
    "Llama, yarn": ("Llama", {"rope_parameters": YARN}),
    "Llama, linear rope": (
        "Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0}},
    ),
    "Mistral": ("Mistral", {"sliding_window": WINDOW}),
    "Mistral, no window": ("Mistral", {"sliding_window": None}),
    "Qwen2": ("Qwen2", {}),
    "Qwen2, some windows": (
        "Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "Qwen3": ("Qwen3", {}),
    "Qwen3, some windows": (
        "Qwen3",
        {
            "attention_bias": True, "use_sliding_window": True, "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "SmolLM3": ("SmolLM3", {"no_rope_layers": [1, 0], "tie_word_embeddings": False}),
}  # fmt: skip
NUM_TOKENS = 12


def network_of(case: str) -> Any:
    family, changes = CASES[case]
    network = make_network(getattr(transformers, f"{family}Config")(**{**SIZES, **changes}))
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1:  # biases are zero and norms one otherwise: a missing one would not show
            parameter.data.add_(torch.randn_like(parameter) * (0.3 if "bias" in name else 0.1))
    return network


def own_logits(network: Any, ids: list[int]) -> torch.Tensor:
    network.set_attn_implementation("eager")
    with torch.no_grad():
        logits: torch.Tensor = network(torch.tensor([ids]), use_cache=False).logits[0]
    return logits


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, smollm2_folder: Path) -> Any:
    network = network_of(request.param)
    return network, model_folder(network, tmp_path_factory.mktemp("lean") / "model", smollm2_folder)


def test_given_float32_then_logits_equal_those_of_transformers(made: Any) -> None:
    network, folder = made
    ids = [(7 * place + 3) % VOCAB_SIZE for place in range(70)]
    (found,) = logits_of(lean_decoder(folder, dtype="float32"), [(ids, 0, [5, 1, 9, 2, 0])])
    torch.testing.assert_close(found, own_logits(network, ids), atol=2e-4, rtol=2e-4)


def test_given_bfloat16_then_logits_stay_close_to_those_of_transformers_in_float32(made: Any) -> None:
    network, folder = made
    ids = [(11 * place + 3) % VOCAB_SIZE for place in range(40)]
    (found,) = logits_of(lean_decoder(folder, dtype="bfloat16"), [(ids, 0, [5, 1, 9])])
    expected = own_logits(network, ids)
    assert (found - expected).norm() < 0.04 * expected.norm()


def test_given_a_crowded_batch_then_greedy_answers_equal_those_of_transformers(made: Any) -> None:
    network, folder = made
    prompts = [[(31 * length + 7 * place) % VOCAB_SIZE for place in range(length)] for length in (1, 9, 14, 33)]
    expected = [own_greedy(network, prompt, NUM_TOKENS) for prompt in prompts]
    model = lean_decoder(folder, num_pages=6, dtype="float32")  # too few pages for all: someone is preempted
    config = EngineConfig(page_size=PAGE_SIZE, num_pages=6, max_sequences=4, step_tokens=10, max_context=96)
    engine = Engine(model, LetterDetokenizer, config)
    jobs = [make_job(prompt, max_tokens=NUM_TOKENS) for prompt in prompts]
    collected = Collected()
    for job in jobs:
        engine.add(job)
        collected.take(engine.step())
    run(engine, collected)
    assert [collected.token_ids(job) for job in jobs] == expected
    assert len({tuple(answer) for answer in expected}) == len(prompts)
