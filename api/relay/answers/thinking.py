"""Answers that begin with what the model thinks, between ``<think>`` and ``</think>``."""

from api.relay.answers.incoming import Steps
from api.relay.answers.reading import Reader, Reading

OPEN, CLOSE = "<think>", "</think>"


def thinking_reader(is_open: bool) -> Reader:
    """`is_open`: the prompt has opened the thoughts already; else they are there only where the answer opens them."""

    def read(reading: Reading) -> Steps[None]:
        source = reading.source
        reading.is_thinking = is_open
        yield from source.space()
        reading.is_thinking = yield from source.word(OPEN)
        if not (is_open or reading.is_thinking):
            source.look_back()
            return
        reading.is_thinking = True
        yield from source.space()
        source.take()
        yield from source.up_to((CLOSE,), _Trimmed(reading).tell)
        yield from source.word(CLOSE)
        reading.is_thinking = False
        yield from source.space()
        source.take()

    return read


class _Trimmed:
    """White space at the end of the thoughts is left out."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._space = ""

    def tell(self, text: str) -> None:
        text = self._space + text
        stripped = text.rstrip()
        self._space = text[len(stripped) :]
        self._reading.reasoning(stripped)
