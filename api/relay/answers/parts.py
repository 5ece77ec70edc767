"""What an answer consists of, and what reads it from the model's text."""

import hashlib
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallBegin:
    """The `index`-th tool call of a choice, from 0. Its arguments follow in pieces; the next call begins after it."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A piece of JSON text."""

    index: int
    text: str


Part = Content | Reasoning | ToolCallBegin | ToolCallArguments


class Splitter(Protocol):
    """Reads one choice's text as it grows. What it returns depends on the text alone, not on how it was cut."""

    @property
    def is_thinking(self) -> bool:
        """Whether the text so far ends within the reasoning."""
        ...

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain by now. Holds back what may turn out to be a marker."""
        ...

    def close(self) -> list[Part]:
        """The rest: the answer has ended, whole or cut off."""
        ...


class PlainSplitter:
    """All is content."""

    is_thinking = False

    def feed(self, text: str) -> list[Part]:
        return [Content(text)] if text else []

    def close(self) -> list[Part]:
        return []


def tool_call_id(job_id: str, choice: int, index: int) -> str:
    """Like ``call_`` and 24 characters; the same at every process that relays the job."""
    return "call_" + hashlib.sha256(f"{job_id}:{choice}:{index}".encode()).hexdigest()[:24]
