"""How families of models write tool calls, each read by one reader. What is no whole call stays content."""

import re
from collections.abc import Collection

from api.relay.answers.calls import CallReader
from api.relay.answers.incoming import Steps
from api.relay.answers.reading import Reader, Reading

TAG, END_TAG = "<tool_call>", "</tool_call>"
CALLS, ARGUMENTS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
PYTHON_TAG = "<|python_tag|>"

_NAME = re.compile(r"[\w.\-]+")


def read_tagged(reading: Reading) -> Steps[None]:
    """Hermes, Qwen and many more: ``<tool_call>{"name": ..., "arguments": ...}</tool_call>``, anywhere in the text."""
    source, calls = reading.source, CallReader(reading)
    while (yield from source.up_to((TAG,), reading.content)):
        yield from source.word(TAG)
        yield from source.space()
        in_list = (yield from source.character()) == "["
        if not (yield from calls.read_list() if in_list else calls.read()):
            _keep_as_content(reading, TAG)
            continue
        yield from source.space()
        yield from source.word(END_TAG)
        yield from source.space()
        source.take()


def read_mistral(reading: Reading) -> Steps[None]:
    """``[TOOL_CALLS][{"name": ..., "arguments": ...}]``, or ``[TOOL_CALLS]name[ARGS]{...}`` once or more."""
    source, calls = reading.source, CallReader(reading)
    while (yield from source.up_to((CALLS,), reading.content)):
        yield from source.word(CALLS)
        yield from source.space()
        begin = yield from source.character()
        if begin == "[":
            is_call = yield from calls.read_list()
        elif begin == "{":
            is_call = yield from calls.read()
        else:
            is_call = yield from _read_named(reading)
        if not is_call:
            _keep_as_content(reading, CALLS)
            continue
        yield from source.space()
        source.take()


def bare_reader(names: Collection[str]) -> Reader:
    """Llama 3: the answer is ``{"name": ..., "parameters": ...}``, of a function that there is, or several of them."""

    def read(reading: Reading) -> Steps[None]:
        source, calls = reading.source, CallReader(reading, names)
        yield from source.space()
        yield from source.word(PYTHON_TAG)
        while True:
            yield from source.space()
            if not (yield from calls.read()):
                break
            yield from source.space()
            if (yield from source.word(";")):
                yield from source.space()
            source.take()
        source.look_back()
        while (yield from source.character()):
            source.at = len(source.text)
            reading.content(source.take())

    return read


def _read_named(reading: Reading) -> Steps[bool]:
    source = reading.source
    name = yield from _name(reading)
    if name and (yield from source.word(CALL_ID)):
        yield from _name(reading)
    yield from source.word(ARGUMENTS)
    yield from source.space()
    if not name or (yield from source.character()) != "{":
        return False
    reading.begin_call(name)
    source.take()
    yield from source.raw_value(reading.arguments)
    return True


def _name(reading: Reading) -> Steps[str]:
    source, begin = reading.source, reading.source.at
    while True:
        found = _NAME.match(source.text, begin)
        source.at = found.end() if found else begin
        if source.at < len(source.text) or source.is_whole:
            return source.text[begin : source.at]
        yield


def _keep_as_content(reading: Reading, marker: str) -> None:
    """The marker, which no call followed; what comes after it is looked at again."""
    reading.source.at = len(marker)
    reading.content(reading.source.take())
