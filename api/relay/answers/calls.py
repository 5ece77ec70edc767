"""Tool calls written as JSON: ``{"name": ..., "arguments": ...}``."""

import json
from collections.abc import Collection
from typing import Any

from api.relay.answers.incoming import BROKEN, Steps
from api.relay.answers.reading import Reading

ARGUMENTS = ("arguments", "parameters")
KNOWN = ("name", "arguments", "type", "id")  # what models write of a call


class CallReader:
    """Reads calls at the place where the text is."""

    def __init__(self, reading: Reading, names: Collection[str] | None = None) -> None:
        """With `names`, an object that does not call one of these, with arguments, is no call."""
        self._reading = reading
        self._source = reading.source
        self._names = names

    def read(self) -> Steps[bool]:
        """Takes a call and tells it, its arguments as they come. False: there is none, and nothing was passed."""
        begin = self._source.at
        is_call = yield from self._read()
        if not is_call:
            self._source.at = begin
        return is_call

    def _read(self) -> Steps[bool]:
        found: dict[str, Any] = {}
        if not (yield from self._source.word("{")):
            return False
        while True:
            key = yield from self._key()
            kind = "arguments" if key in ARGUMENTS else key
            if kind is None or not (self._names is None or kind in KNOWN):
                return False
            if kind == "arguments" and "name" in found and (yield from self._source.character()) == "{":
                self._reading.begin_call(found["name"])
                yield from self._source.raw_value(self._reading.arguments)
                yield from self._pass_rest()
                return True
            value = yield from self._source.value()
            if not self._is_allowed(kind, value):
                return False
            found[kind] = value
            yield from self._source.space()
            if not (yield from self._source.word(",")):
                return (yield from self._end(found))

    def read_list(self) -> Steps[bool]:
        """The same for the calls of a JSON array; what follows the last good one is left."""
        if not (yield from self._source.word("[")):
            return False
        num_before = self._reading.num_calls
        while True:
            yield from self._source.space()
            if not (yield from self.read()):
                break
            yield from self._source.space()
            if not (yield from self._source.word(",")):
                yield from self._source.word("]")
                break
        return self._reading.num_calls > num_before

    def _key(self) -> Steps[str | None]:
        yield from self._source.space()
        if (yield from self._source.character()) != '"':
            return None
        key = yield from self._source.value()
        yield from self._source.space()
        if not isinstance(key, str) or not (yield from self._source.word(":")):
            return None
        yield from self._source.space()
        return key

    def _is_allowed(self, kind: str, value: Any) -> bool:
        if kind == "name":
            return isinstance(value, str) and value != "" and (self._names is None or value in self._names)
        if kind == "arguments":
            return value is None or isinstance(value, str | dict)
        return value is not BROKEN

    def _end(self, found: dict[str, Any]) -> Steps[bool]:
        """A call whose arguments did not come as an object after the name."""
        is_whole = yield from self._source.word("}")
        if not is_whole or "name" not in found or (self._names is not None and "arguments" not in found):
            return False
        arguments = found.get("arguments") or {}
        self._source.take()
        self._reading.begin_call(found["name"])
        self._reading.arguments(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
        return True

    def _pass_rest(self) -> Steps[None]:
        """What an object holds after its arguments, up to its end."""
        while True:
            yield from self._source.space()
            if not (yield from self._source.word(",")):
                yield from self._source.word("}")
                self._source.take()
                return
            if (yield from self._key()) is None:
                self._source.look_back()
                return
            yield from self._source.value()
