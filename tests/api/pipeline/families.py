"""The default model's tokenizer with the chat templates of other families, and what is special to these."""

from pathlib import Path
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken
from transformers import TokenizersBackend

from api.pipeline.answer_plan import answer_style
from api.pipeline.native_pool import NativePool
from api.pipeline.tokenizer import ModelTokenizer

TEMPLATES = Path(__file__).parent / "templates"
SPECIAL: dict[str, list[str]] = {
    "described": [],
    "hermes": [],
    "llama": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "mistral": ["[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[INST]", "[/INST]", "[TOOL_RESULTS]"],
    "thinking": [],
    "templated": ["<|channel>", "<channel|>", "<|call>", "<call|>"],
}
RESPONSE_TEMPLATES: dict[str, Any] = {
    "templated": {
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "reasoning_content": {"open": "<|channel>thought\n", "close": "<channel|>"},
            "tool_calls": {
                "open_pattern": r"<\|call>call:(?P<name>\w+)",
                "close": "<call|>",
                "repeats": True,
                "optional": False,
                "content": "json",
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            },
            "content": {"close": ["<|im_end|>"]},
        },
    }
}
ORDINARY = ["<tool_call>", "</tool_call>", "<think>", "</think>"]  # added to a vocabulary, but not special


class Family:
    """ "described" is the default model itself, whose template knows nothing of functions."""

    def __init__(self, name: str, smollm2_folder: Path) -> None:
        backend = TokenizersBackend.from_pretrained(str(smollm2_folder))
        if name != "described":
            backend.chat_template = (TEMPLATES / f"{name}.jinja").read_text()
            backend.add_tokens([AddedToken(text, special=False) for text in ORDINARY])
        backend.response_template = RESPONSE_TEMPLATES.get(name)
        backend.add_tokens([AddedToken(text, special=True) for text in SPECIAL[name]], special_tokens=True)
        self._backend = backend.backend_tokenizer
        self.tokenizer = ModelTokenizer(backend, NativePool(1))
        self.style = answer_style(self.tokenizer, self.tokenizer.vocab_size)
        self._matching = LLTokenizer(self._backend.to_str(), n_vocab=self.tokenizer.vocab_size)

    def text_of(self, ids: list[int]) -> str:
        text: str = self._backend.decode(ids, skip_special_tokens=False)
        return text

    def accepts(self, grammar: str, text: str) -> bool:
        """Whether the text is a whole answer, with special tokens where they are written."""
        matcher = LLMatcher(self._matching, grammar, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        ids = self._matching.tokenize_str(text, parse_special=True)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()
