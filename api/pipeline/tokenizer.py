"""A model's tokenizer, loaded and used without torch."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models
from transformers import TokenizersBackend

from api.errors import bad_request, context_length_exceeded
from api.pipeline.chat_template import USUAL, ChatTemplate, TemplateOptions, change_user_texts, user_texts
from api.pipeline.control_tokens import (
    ControlTokens,
    ForgedControlTokenError,
    Markers,
    TooManyNoncharactersError,
)
from api.pipeline.fill_in import fill_in_of
from api.pipeline.grammar_check import GrammarCheck
from api.pipeline.messages import Message
from api.pipeline.native_pool import NativePool
from api.pipeline.prompts import Prompt

NUM_END_TOKENS = 16
MIN_UNSET_LENGTH = 10**9  # transformers writes an enormous model_max_length where a tokenizer names none


class TokenizerNotUsableError(RuntimeError):
    """The folder or hub id holds no tokenizer that can be loaded without torch and foreign code."""


class ModelTokenizer:
    """Text to token ids. Every method may be called from any greenlet; encoding runs in the pool's threads."""

    def __init__(self, backend: Any, pool: NativePool) -> None:
        """`backend` is a transformers TokenizersBackend."""
        self._tokenizer: Tokenizer = backend.backend_tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._pool = pool
        self.template = ChatTemplate(backend)
        self._control = ControlTokens(self._tokenizer, control_literals(self._tokenizer, self.template.source))
        self.response_template: Any = backend.response_template  # how answers are to be read; None for most models
        self._bos_id: int | None = backend.bos_token_id
        self._fill_in = fill_in_of(self._tokenizer)
        declared = backend.model_max_length
        self.max_length = int(declared) if declared and declared < MIN_UNSET_LENGTH else None
        self.vocab_size = max(self._tokenizer.get_vocab().values()) + 1
        self.longest_token_bytes = longest_token_bytes(self._tokenizer)

    @classmethod
    def load(cls, path: str, pool: NativePool) -> "ModelTokenizer":
        """From a folder or hub id. Raises TokenizerNotUsableError, OSError when its files cannot be fetched."""
        try:
            # The automatic class would import torch where it is installed, half a gigabyte in every API process.
            return cls(TokenizersBackend.from_pretrained(path), pool)
        except (OSError, ValueError, TypeError, KeyError, ImportError, AttributeError) as error:
            if isinstance(error, OSError) and not Path(path).is_dir():
                raise
            raise TokenizerNotUsableError(
                f"HEADRACE_MODEL={path!r}: its tokenizer cannot be loaded: {error}"
            ) from error

    def encode_chat(self, messages: Sequence[Message], max_context: int, options: TemplateOptions = USUAL) -> list[int]:
        """Token ids of the conversation up to where the model is to go on. Raises ApiError 400.

        Only the template writes control tokens; the same words inside a message are encoded as text.
        """
        # The template is Python and may be slow: in a thread it shares the interpreter with the event loop.
        return self._pool.run(lambda: self._chat_ids(messages, max_context, options))

    def _chat_ids(self, messages: Sequence[Message], max_context: int, options: TemplateOptions) -> list[int]:
        try:
            texts = user_texts(messages, options)
            if any(map(self._control.can_forge, texts)):
                return self._marked_chat_ids(messages, Markers(texts), max_context, options)
            rendered = self.template.render(messages, options)
            self._refuse_too_long(rendered, max_context)
            return self._encode([rendered], add_special_tokens=False)[0]
        except (TooManyNoncharactersError, ForgedControlTokenError, RecursionError) as error:
            raise bad_request(f"The messages cannot be encoded: {error}.", "messages") from error

    def _marked_chat_ids(
        self, messages: Sequence[Message], markers: Markers, max_context: int, options: TemplateOptions
    ) -> list[int]:
        def mark(text: str) -> str:
            return self._control.mark(text, markers)

        marked = [change_user_texts(message, mark) for message in messages]
        plain = self.template.render(messages, options)
        self._refuse_too_long(plain, max_context)
        return self._control.encode_marked(self.template.render(marked, options.changed(mark)), plain, markers)

    def encode_prompts(self, prompts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """Token ids of raw prompts, in which control tokens count as such. A start token comes first at most once."""
        return self._pool.run(
            lambda: [self._without_doubled_bos(ids) for ids in self._encode(prompts, add_special_tokens)]
        )

    @property
    def can_fill_in(self) -> bool:
        """Whether the model was taught to write what stands between two texts."""
        return self._fill_in is not None

    def encode_around(self, prompts: Sequence[Prompt], suffix: str) -> list[list[int]]:
        """Token ids that ask for the text between each prompt and `suffix`; only where the model can fill in."""
        assert self._fill_in is not None, "the caller has asked"
        fill_in, start = self._fill_in, [self._bos_id] if self._bos_id is not None and self._adds_bos() else []
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        *encoded, after = self._pool.run(lambda: self._encode([*texts, suffix], add_special_tokens=False))
        before = encoded if texts else [prompt for prompt in prompts if not isinstance(prompt, str)]
        return [start + fill_in.prompt(ids, after) for ids in before]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, control tokens as they are written."""
        text: str = self._pool.run(lambda: self._tokenizer.decode(ids, skip_special_tokens=False))
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary writes it; "" for an id without a token."""
        return [self._tokenizer.id_to_token(token_id) or "" for token_id in ids]

    def _encode(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        # The batch call releases the interpreter lock, the call for one text does not.
        return [e.ids for e in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)]

    def _without_doubled_bos(self, ids: list[int]) -> list[int]:
        is_doubled = self._bos_id is not None and ids[:2] == [self._bos_id] * 2 and self._adds_bos()
        return ids[1:] if is_doubled else ids

    def _adds_bos(self) -> bool:
        return self._encode([""], add_special_tokens=True)[0][:1] == [self._bos_id]

    def end_of(self, ids: Sequence[int]) -> str:
        """The last words of a prompt, control tokens included."""
        text: str = self._tokenizer.decode(list(ids[-NUM_END_TOKENS:]), skip_special_tokens=False)
        return text

    def added_ids(self, words: Iterable[str], *, is_special: bool = False) -> dict[str, int]:
        """The ids of those words that the vocabulary has as one added token; special ones are no part of a text."""
        added = {token.content: (i, token.special) for i, token in self._tokenizer.get_added_tokens_decoder().items()}
        return {word: added[word][0] for word in words if word in added and (added[word][1] or not is_special)}

    @property
    def special_ids(self) -> dict[str, int]:
        """Tokens that are no part of a text, as they are written."""
        return {token.content: i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}

    def grammar_check(self, vocab_size: int) -> GrammarCheck | None:
        """None where the vocabulary is of a kind that cannot follow grammars."""
        try:
            return GrammarCheck(self._tokenizer, max(vocab_size, self.vocab_size))
        except ValueError:
            return None

    def _refuse_too_long(self, text: str, max_context: int) -> None:
        """Raises ApiError 400 context_length_exceeded before the tokenizer reads what can never fit."""
        fewest = self.fewest_tokens(len(text.encode()))
        if fewest >= max_context:
            raise context_length_exceeded(max_context, fewest, "messages", is_lower_bound=True)

    def fewest_tokens(self, num_bytes: int) -> int:
        """A lower bound of the tokens of a text of so many UTF-8 bytes."""
        return 0 if self.longest_token_bytes is None else -(-num_bytes // self.longest_token_bytes)


def control_literals(tokenizer: Tokenizer, template: str) -> set[str]:
    """Special tokens, and those other added tokens that the template mentions.

    White space is no control token (some vocabularies add it), and other added tokens are ordinary words of the model.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    return {token.content for token in added if token.content.strip() and (token.special or token.content in template)}


def longest_token_bytes(tokenizer: Tokenizer) -> int | None:
    """The most UTF-8 bytes one token can stand for; None where any length of unknown text may become one token."""
    model = tokenizer.model
    if not isinstance(model, models.BPE) or (
        model.unk_token and not model.byte_fallback and not _is_byte_level(tokenizer)
    ):
        return None
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    width = len if _is_byte_level(tokenizer) else _utf8_length
    words = (width(word) for word in tokenizer.get_vocab(with_added_tokens=False))
    return max(*words, *map(_utf8_length, added), 1)


def _is_byte_level(tokenizer: Tokenizer) -> bool:
    """Such vocabularies write each byte as one character."""
    return isinstance(tokenizer.decoder, decoders.ByteLevel)


def _utf8_length(text: str) -> int:
    return len(text.encode())
