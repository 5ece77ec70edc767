"""Incremental detokenizers: token ids in, text out, each piece final.

The joined pieces equal the tokenizer's own decode of all ids with special tokens skipped. A piece never ends inside a
character: bytes are held back until it is whole or known to be invalid.
"""

import codecs
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

NUM_BYTES = 256


class Detokenizer(Protocol):
    def feed(self, token_id: int) -> str:
        """The text that became final with this token; empty while a character is incomplete."""

    def flush(self) -> str:
        """What is still held back, at the end of the answer."""

    def token_bytes(self, token_id: int) -> bytes:
        """One token by itself, where it is not the first of a text; special tokens as they are written."""


class ByteDetokenizer:
    """For byte-level vocabularies, where a token is a run of UTF-8 bytes whatever stands beside it."""

    def __init__(self, bytes_of: Callable[[int], bytes], token_bytes: Callable[[int], bytes]) -> None:
        """`bytes_of` gives nothing for special tokens, `token_bytes` their names."""
        self._bytes_of = bytes_of
        self.token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token_id: int) -> str:
        return self._decoder.decode(self._bytes_of(token_id))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class WindowDetokenizer:
    """For other vocabularies: decodes a short window of recent tokens and shows what is new at its end.

    The window begins with tokens already shown, because decoders treat the first token in a special way (they strip
    its leading space, for instance).
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        has_text: Callable[[int], bool],
        held: Collection[int],
        token_bytes: Callable[[int], bytes],
    ) -> None:
        """After one of the `held` ids nothing is final: a run of byte tokens is decoded as a whole, and one bad byte
        turns all of the run's characters into replacements."""
        self.token_bytes = token_bytes
        self._decode = decode
        self._has_text = has_text
        self._held = held
        self._window: list[int] = []
        self._num_shown = 0  # tokens of the window whose text is out
        self._shown = ""  # their text

    def feed(self, token_id: int) -> str:
        if not self._has_text(token_id):
            return ""
        self._window.append(token_id)
        return "" if token_id in self._held else self.flush()

    def flush(self) -> str:
        text = self._decode(self._window)
        piece = text[len(self._shown) :]
        recent = self._window[self._num_shown :]
        recent_text = self._decode(recent)
        if recent_text:  # a window without text could not tell whether a leading space was stripped
            self._window, self._shown = recent, recent_text
        else:
            self._shown = text
        self._num_shown = len(self._window)
        return piece


def detokenizer_factory(tokenizer: Any) -> Callable[[], Detokenizer]:
    """Makes one detokenizer a sequence for this transformers tokenizer."""
    backend = tokenizer.backend_tokenizer
    stages = _decoder_stages(backend.decoder)
    names = {id: token.content.encode() for id, token in backend.get_added_tokens_decoder().items() if token.special}
    if [stage["type"] for stage in stages] == ["ByteLevel"]:
        table, full_table = _TokenBytes(backend, dict.fromkeys(names, b"")), _TokenBytes(backend, names)
        return lambda: ByteDetokenizer(table.__getitem__, full_table.__getitem__)
    byte_tokens = _byte_tokens(backend) if any(stage["type"] == "ByteFallback" for stage in stages) else {}
    alone = _BytesAlone(backend, {**byte_tokens, **names})

    def decode(token_ids: Sequence[int]) -> str:
        text: str = backend.decode(token_ids, skip_special_tokens=True)
        return text

    def has_text(token_id: int) -> bool:
        return token_id not in names and backend.id_to_token(token_id) is not None  # a vocabulary may be padded

    return lambda: WindowDetokenizer(decode, has_text, byte_tokens, alone.__getitem__)


def _decoder_stages(decoder: Any) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    description = json.loads(decoder.__getstate__())
    stages: list[dict[str, Any]] = description["decoders"] if description["type"] == "Sequence" else [description]
    return stages


def _byte_tokens(backend: Any) -> dict[int, bytes]:
    ids = {backend.token_to_id(f"<0x{byte:02X}>"): bytes([byte]) for byte in range(NUM_BYTES)}
    return {id: byte for id, byte in ids.items() if id is not None}


class _BytesAlone(dict[int, bytes]):
    """The text of each token where it does not begin a text, as bytes, worked out when first asked for."""

    def __init__(self, backend: Any, known: dict[int, bytes]) -> None:
        super().__init__(known)
        self._backend = backend

    def __missing__(self, token_id: int) -> bytes:
        once, twice = (self._backend.decode([token_id] * times, skip_special_tokens=False) for times in (1, 2))
        self[token_id] = twice[len(once) :].encode()
        return self[token_id]


class _TokenBytes(dict[int, bytes]):
    """The bytes of each token of a byte-level vocabulary, worked out when first asked for."""

    def __init__(self, backend: Any, known: dict[int, bytes]) -> None:
        super().__init__(known)
        self._backend = backend

    def __missing__(self, token_id: int) -> bytes:
        token = self._backend.id_to_token(token_id)
        self[token_id] = b"" if token is None else _bytes_of_token(token)
        return self[token_id]


def _bytes_of_token(token: str) -> bytes:
    try:
        return bytes(_byte_of_character[character] for character in token)
    except KeyError:  # an added token is plain text, not in the byte alphabet
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """The characters that stand for bytes in byte-level vocabularies: printable ones for themselves, the others
    for the code points from 256 on, in order."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(NUM_BYTES) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(NUM_BYTES + i): byte for i, byte in enumerate(others)}


_byte_of_character = _byte_alphabet()
