"""Answers in the format of a response template, which a model's tokenizer may have with it."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from transformers.utils.chat_parsing import parse_response
from transformers.utils.chat_parsing.response_templates import ResponseTemplate, load_response_template

from api.relay.answers.parts import Part
from api.relay.answers.reading import Reading
from api.relay.answers.template_fields import FieldFinder, FieldPiece
from api.stream_view import AnswerFormat

CONTENT, CALLS = "content", "tool_calls"
REASONING = ("reasoning_content", "reasoning", "thinking")  # as templates name it
CHECKED = ("json", "python-call-list")  # what parses is whole, though no mark closes it: an end token may be the mark

Call = tuple[str, str]  # name and arguments


class TemplateSplitter:
    """See Splitter. A call is told when it is whole; what is none is content. Fields of other names are left out."""

    def __init__(self, answer: AnswerFormat) -> None:
        self._template = _loaded(answer.template)
        self._functions = answer.functions
        self._reading = Reading()
        self._texts = {name: self._field_text(name) for name in self._template.fields if name != CALLS}
        self._call = ""  # the text of a call so far, with its marks
        self._finder = FieldFinder(self._template)
        self._pass(answer.begun)

    @property
    def is_thinking(self) -> bool:
        return self._finder.field in REASONING

    def feed(self, text: str) -> list[Part]:
        return self._read(self._finder.feed(text))

    def close(self) -> list[Part]:
        return self._read(self._finder.close())

    def _pass(self, begun: str) -> None:
        """What the prompt has begun is not told again, but the answer goes on in the field that it ends in."""
        self._read(self._finder.feed(begun))
        self._read(self._finder.drop_held())
        self._reading.num_calls = 0
        for text in self._texts.values():
            text.forget_space()

    def _read(self, pieces: Iterable[FieldPiece]) -> list[Part]:
        for piece in pieces:
            if piece.field == CALLS:
                self._read_call(piece)
            elif piece.field in self._texts:
                text = self._texts[piece.field]
                text.feed(piece.text) if piece.kind == "text" else text.end()
        return self._reading.take_parts()

    def _read_call(self, piece: FieldPiece) -> None:
        self._call += piece.text
        if piece.kind != "closes":
            return
        is_whole = bool(piece.text) or self._template.fields[CALLS].content in CHECKED
        calls = _calls(self._call, self._template, self._functions) if is_whole else []
        if self._call and not calls:
            self._reading.plain_content(self._call)
        for name, arguments in calls:
            self._reading.begin_call(name)
            self._reading.arguments(arguments)
        self._call = ""

    def _field_text(self, name: str) -> "FieldText":
        field = self._template.fields[name]
        tell = self._reading.plain_content if name == CONTENT else self._reading.reasoning
        is_told = name == CONTENT or name in REASONING
        is_trimmed = bool(field.content_args.get("strip", True))
        return FieldText(tell if is_told else _tell_nobody, is_trimmed, field.join or "")


class FieldText:
    """Tells what stands in a field, trimmed where the template says so."""

    def __init__(self, tell: Callable[[str], None], is_trimmed: bool, join: str) -> None:
        """`join` stands between two texts of the field."""
        self._tell = tell
        self._is_trimmed = is_trimmed
        self._join = join
        self._space = ""  # it counts only when more follows
        self._has_text = False
        self._follows_text = False  # of the same field, earlier

    def feed(self, text: str) -> None:
        if self._is_trimmed:
            text = self._space + text if self._has_text else text.lstrip()
            stripped = text.rstrip()
            self._space, text = text[len(stripped) :], stripped
        if not text:
            return
        if self._follows_text and not self._has_text:
            text = self._join + text
        self._has_text = True
        self._tell(text)

    def end(self) -> None:
        self._follows_text = self._follows_text or self._has_text
        self._has_text = False
        self._space = ""

    def forget_space(self) -> None:
        self._space = ""


def _tell_nobody(text: str) -> None:
    pass


@lru_cache(maxsize=8)
def _loaded(template: str) -> ResponseTemplate:
    return load_response_template(json.loads(template))


def _calls(text: str, template: ResponseTemplate, functions: Mapping[str, Any]) -> list[Call]:
    """Empty where the text is no whole call."""
    tools = [{"function": {"name": name, "parameters": parameters}} for name, parameters in functions.items()]
    try:
        found = parse_response(text, template, prefix="", tools=tools).get(CALLS)
        return [_call(value) for value in _flat(found)]
    except Exception:  # whatever a template's pattern makes of what the model wrote
        return []


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [inner for each in value for inner in _flat(each)]
    return [] if value is None else [value]


def _call(value: dict[str, Any]) -> Call:
    """Raises ValueError or another exception for what is no call."""
    function = value.get("function", value)
    name, arguments = function["name"], function.get("arguments") or {}
    if not isinstance(name, str) or not name or not isinstance(arguments, dict | str):
        raise ValueError("not the name and the arguments of a call")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    f"{name}{written}".encode()  # JSON can spell what no answer can tell: half a surrogate pair
    return name, written
