"""A model that recites: what it says next depends on the place alone, so a test knows every token of every answer.

It is a GPT-2 whose attention and layers add nothing and whose place embeddings point each at the token to come.
After a prompt of n tokens, whatever they are, the greedy answer is SCRIPT[n], SCRIPT[n + 1] and so on.
"""

import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from tests.models import TOKENIZER_FILES

RECITER = "reciter"  # its folder's name, so the name it is served under
CONTEXT = 384  # tokens
END = 2  # <|im_end|>, the end token
FILLER = 300  # any ordinary token
NUM_PROSE = 240  # places of the script that prose takes, from the beginning
PLACE_WEIGHT = 100.0  # far above what a token's own embedding adds

PROSE = (
    "The river rises in the hills behind the old mill, where the shepherds count their sheep in spring. "
    "It runs past gardens and barns, under two stone bridges, and through the town that gave it a name. "
)
BIRD = [10813, 234, 116]  # 🐦 in three tokens

PIECES: dict[str, str | list[int]] = {
    "emoji": "Look: 🐦👩‍🚀 水漢字かな한국 Ω é 🏳️‍🌈 seen.",
    "broken": [*BIRD[:2], 300, 129, *BIRD[:1], *BIRD, 300],  # bytes of characters that are never whole
    "special": [3725, 5, 827, 1, 3, 1838],  # ordinary words, and control tokens between them
    "spaces": "  two  spaces\n\n\ttab\r\n   end  ",
    "stops": "one, two; three -- four ENDING of ENDLESS END. five",
    "ending": "All done.",
    "fields": "<issue_start> Long?\n<issue_closed>Let me see."
    "<jupyter_code>rise<river>Isar</river><km>295</km><jupyter_output> Done.",
}


@dataclass(frozen=True)
class Recital:
    """The script and where each of its pieces begins."""

    tokenizer: Tokenizer

    @classmethod
    def load(cls, tokenizer_folder: Path) -> "Recital":
        return cls(Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json")))

    @cached_property
    def _prose(self) -> list[int]:
        return self._ids(PROSE * 10)[:NUM_PROSE]

    @cached_property
    def script(self) -> list[int]:
        """Token ids by place; an end token after each piece."""
        ids = [*self._prose]
        for piece in PIECES.values():
            ids += [*self._ids(piece), END]
        assert len(ids) <= CONTEXT
        return ids + [END] * (CONTEXT - len(ids))

    def prompt(self, piece: str) -> list[int]:
        """A prompt, as token ids, after which the model recites the piece."""
        length = len(self._prose)
        for name, ids in PIECES.items():
            if name == piece:
                return [FILLER] * length
            length += len(self._ids(ids)) + 1
        raise KeyError(piece)

    def num_tokens(self, piece: str) -> int:
        """Of the piece alone, without its end token."""
        return len(self._ids(PIECES[piece]))

    def text(self, num_prompt_tokens: int, num_tokens: int) -> str:
        """The answer of so many tokens, as the tokenizer itself decodes it."""
        return self.decode(self.script[num_prompt_tokens : num_prompt_tokens + num_tokens])

    def decode(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def _ids(self, piece: str | list[int]) -> list[int]:
        if isinstance(piece, list):
            return piece
        ids: list[int] = self.tokenizer.encode(piece, add_special_tokens=False).ids
        return ids


def make_reciter(folder: Path, tokenizer_folder: Path) -> None:
    """Writes the model folder."""
    import torch  # noqa: PLC0415  most tests do without
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel  # noqa: PLC0415

    script = Recital.load(tokenizer_folder).script
    config = GPT2Config(
        vocab_size=49152,
        n_positions=CONTEXT,
        n_embd=CONTEXT,
        n_layer=1,
        n_head=4,
        n_inner=8,
        bos_token_id=1,
        eos_token_id=END,
        dtype="float32",
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")):
                weight.zero_()
        model.transformer.wpe.weight.copy_(PLACE_WEIGHT * torch.eye(CONTEXT))
        for place, token_id in enumerate(script[1:]):
            model.transformer.wte.weight[token_id, place] = 1  # also the output layer: GPT-2 ties the two
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=END, pad_token_id=END)
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(tokenizer_folder / name, folder / name)
