"""Splitters as straight-line readers over text that is still coming."""

from collections.abc import Callable

from api.relay.answers.incoming import Incoming, Steps
from api.relay.answers.parts import Content, Part, Reasoning, ToolCallArguments, ToolCallBegin


class Reading:
    """An answer's text on one side, its parts on the other."""

    def __init__(self) -> None:
        self.source = Incoming()
        self.is_thinking = False
        self.num_calls = 0
        self._parts: list[Part] = []
        self._space = ""  # at the end of the content so far: it counts only when more content follows

    def content(self, text: str) -> None:
        """White space around tool calls is nobody's content."""
        text = self._space + text
        stripped = text.rstrip()
        self._space = text[len(stripped) :]
        if stripped:
            self._parts.append(Content(stripped))

    def plain_content(self, text: str) -> None:
        """Where there can be no tool calls, white space waits for nothing."""
        self._parts.append(Content(text))

    def reasoning(self, text: str) -> None:
        if text:
            self._parts.append(Reasoning(text))

    def begin_call(self, name: str) -> None:
        self._space = ""
        self._parts.append(ToolCallBegin(self.num_calls, name))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        """Of the call begun last."""
        if text:
            self._parts.append(ToolCallArguments(self.num_calls - 1, text))

    def end(self) -> None:
        if self._space and not self.num_calls:
            self._parts.append(Content(self._space))
        self._space = ""

    def take_parts(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts


Reader = Callable[[Reading], Steps[None]]


class ReadingSplitter:
    """See Splitter."""

    def __init__(self, *readers: Reader) -> None:
        """Each reads on where the one before it ended."""
        self._reading = Reading()
        self._steps = self._read(readers)

    @property
    def is_thinking(self) -> bool:
        return self._reading.is_thinking

    def feed(self, text: str) -> list[Part]:
        self._reading.source.text += text
        return self._go_on()

    def close(self) -> list[Part]:
        self._reading.source.is_whole = True
        return self._go_on()

    def _go_on(self) -> list[Part]:
        next(self._steps, None)
        return self._reading.take_parts()

    def _read(self, readers: tuple[Reader, ...]) -> Steps[None]:
        for reader in readers:
            yield from reader(self._reading)
        self._reading.end()


def read_content(reading: Reading) -> Steps[None]:
    """All is content."""
    source = reading.source
    while (yield from source.character()):
        source.at = len(source.text)
        reading.plain_content(source.take())
