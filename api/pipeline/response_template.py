"""How a model's tokenizer says that answers are to be read: transformers' response templates.

Some families write calls in ways that the readers of JSON calls do not know. Where the tokenizer of one has no
template, one of ours takes its place.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers.utils.chat_parsing.response_templates import load_response_template

from api.pipeline.tools import Tool
from api.stream_view import AnswerFormat

CALLS = "tool_calls"

Spec = Mapping[str, Any]

log = logging.getLogger("headrace.pipeline")

_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_THOUGHTS = {"open": "<think>", "close": "</think>", "content": "text"}
_QWEN_CODER: Spec = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": _THOUGHTS,
        CALLS: {
            "open_pattern": r"\s*<tool_call>\s*<function=(?P<name>[^>\n]+)>",
            "close_pattern": r"</function>\s*</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>"},
            "transform": _CALL,
        },
        "content": {"content": "text"},
    },
}
_GLM: Spec = {
    "start_anchor": "<|assistant|>",
    "fields": {
        "reasoning_content": _THOUGHTS,
        CALLS: {
            "open_pattern": r"\s*<tool_call>\s*(?P<name>[\w.\-]+)",
            "close": "</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"},
            "transform": _CALL,
        },
        "content": {"content": "text"},
    },
}
KNOWN = {"<function=": _QWEN_CODER, "<arg_key>": _GLM}  # by what the chat template writes calls with


@dataclass(frozen=True)
class ResponseFormat:
    spec: Spec
    special_ids: Mapping[str, int]  # of the vocabulary: tokens that are no part of a text unless a job says so
    is_ours: bool = False  # it is there for the calls

    @property
    def reads_calls(self) -> bool:
        return CALLS in self.spec["fields"]

    def can_read(self, with_calls: bool) -> bool:
        """Else the answer is read as those of the model's family are."""
        return self.reads_calls if with_calls else not self.is_ours

    def begun_in(self, prompt: str) -> str | None:
        """How far the prompt has begun the answer; None where it says nowhere that one begins."""
        found = list(load_response_template(dict(self.spec)).start_anchor_re.finditer(prompt))
        return prompt[found[-1].end() :] if found else None

    def answer(self, prompt: str, tools: tuple[Tool, ...]) -> AnswerFormat:
        """Without functions to call, what looks like a call is content."""
        spec = self._spec(with_calls=bool(tools))
        if not spec["fields"]:
            return AnswerFormat()
        return AnswerFormat(
            template=json.dumps(spec, ensure_ascii=False),
            begun=self.begun_in(prompt) or "",
            tool_names=tuple(tool.name for tool in tools),
            functions={tool.name: tool.parameters for tool in tools},
        )

    def shown_tokens(self, with_calls: bool) -> tuple[int, ...]:
        """Special tokens that the template speaks of."""
        spec = json.dumps(self._spec(with_calls)["fields"], ensure_ascii=False).replace("\\", "")
        return tuple(token_id for token, token_id in self.special_ids.items() if token in spec)

    def _spec(self, with_calls: bool) -> dict[str, Any]:
        """No field has to be there: an answer may be cut off anywhere."""
        fields = {
            name: {key: value for key, value in field.items() if key != "optional"}
            for name, field in self.spec["fields"].items()
            if with_calls or name != CALLS
        }
        return {**self.spec, "fields": fields}


def response_format(own: Any, chat_template: str, special_ids: Mapping[str, int]) -> ResponseFormat | None:
    """`own`: what the model's tokenizer has, or None. None: answers are read as those of the model's family are."""
    known = [spec for mark, spec in KNOWN.items() if mark in chat_template and "tools" in chat_template]
    spec = own or next(iter(known), None)
    if spec is None:
        return None
    try:
        load_response_template(spec)
    except (ValueError, TypeError, AttributeError) as error:
        log.warning("the tokenizer's response template cannot be used: %s", error)
        return None
    return ResponseFormat(spec, special_ids, is_ours=not own)
