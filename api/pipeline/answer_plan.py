"""What an answer must look like and how it will be read: tools, structure and thoughts brought together."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from api.errors import bad_request
from api.pipeline.chat_template import TemplateOptions
from api.pipeline.grammar_check import GrammarCheck
from api.pipeline.json_grammar import Grammar, json_grammar
from api.pipeline.messages import Message
from api.pipeline.reasoning import CLOSE, OPEN, Effort, Reasoning
from api.pipeline.response_template import ResponseFormat, response_format
from api.pipeline.structured_output import Structure, check_schema_size
from api.pipeline.tokenizer import ModelTokenizer
from api.pipeline.tool_formats import ToolFormat, tool_format_of
from api.pipeline.tools import NO_TOOLS, Tool, ToolUse
from api.stream_view import AnswerFormat

NamedGrammar = dict[str, Any]
LOCATING_S = 2.0  # so long it is looked for which of many parts of a grammar is bad


class AsksForAnswer(Protocol):
    """What a checked chat request says about its prompt beside the messages."""

    @property
    def template(self) -> TemplateOptions: ...

    @property
    def tools(self) -> ToolUse: ...

    @property
    def effort(self) -> Effort | None: ...


@dataclass(frozen=True)
class AnswerPlan:
    grammar: str  # see SamplingParams
    format: AnswerFormat
    shown_tokens: tuple[int, ...]  # special tokens that mark parts of the answer


@dataclass(frozen=True)
class AnswerStyle:
    """How a model calls functions and thinks, and what tries its grammars out."""

    tools: ToolFormat
    reasoning: Reasoning
    grammars: GrammarCheck | None  # None: its tokenizer cannot follow any
    mark_ids: dict[str, int]  # markers of the above that are tokens of their own
    hidden_ids: tuple[int, ...]  # those of them that are special, so not shown unless a job says so
    own: ResponseFormat | None  # how the model itself says that its answers are read, where no grammar holds them

    def sees_beginning(self, prompt_end: str) -> bool:
        """Whether the plan needs no more of the prompt."""
        return self.own is None or self.own.begun_in(prompt_end) is not None

    def plan(self, use: ToolUse, structure: Structure | None, prompt_end: str = "") -> AnswerPlan:
        """Raises ApiError 400 for what cannot be followed. `prompt_end` are the last words of the prompt."""
        is_free = structure is None and not use.is_required
        if self.own and is_free and self.own.can_read(bool(use.callable)):
            answer = self.own.answer(prompt_end, use.callable)
            plan = AnswerPlan("", answer, self.own.shown_tokens(bool(use.callable)))
        else:
            plan = self._family_plan(use, structure, prompt_end)
        changed = msgspec.structs.replace(
            plan.format,
            is_single=bool(use.callable) and not use.is_parallel,
            is_legacy=use.is_legacy and bool(use.callable),
        )
        return replace(plan, format=changed)

    def _family_plan(self, use: ToolUse, structure: Structure | None, prompt_end: str) -> AnswerPlan:
        reasoning = self.reasoning.mark_in(prompt_end)
        answer = AnswerFormat(
            reasoning=reasoning,
            tools=self.tools.reader if use.callable else "",
            tool_names=tuple(tool.name for tool in use.callable),
        )
        shown = self.hidden_ids if use.callable or reasoning else ()
        return AnswerPlan(self._grammar(use, structure, reasoning), answer, shown)

    def plan_text(self, structure: Structure | None) -> AnswerPlan:
        """The same for a text completion, which has nothing but a text."""
        return AnswerPlan(self._grammar(NO_TOOLS, structure, ""), AnswerFormat(), ())

    def conversation(self, messages: Sequence[Message], valid: AsksForAnswer) -> tuple[list[Message], TemplateOptions]:
        """What the chat template is given. Raises ApiError 400."""
        try:
            told = self.tools.conversation(messages, valid.tools.told)
        except RecursionError:
            raise bad_request("The arguments of a tool call are nested too deeply.", "messages") from None
        variables = {**self.reasoning.variables(valid.effort), **valid.template.variables}
        shown = tuple(tool.shown() for tool in valid.tools.told) if self.tools.is_in_template else ()
        return told, replace(valid.template, variables=variables, tools=shown)

    def _grammar(self, use: ToolUse, structure: Structure | None, reasoning: str) -> str:
        """Empty: anything goes."""
        if structure is None and not use.is_required:
            return ""
        grammars = self._answer_grammars(use, None if use.is_required else structure)
        if reasoning:
            grammars = [self._after_thoughts(reasoning), *grammars]
        grammar = json.dumps({"grammars": grammars}, ensure_ascii=False)
        if problem := self._problem(grammar):
            raise self._located(problem, use, structure)
        return grammar

    def _answer_grammars(self, use: ToolUse, structure: Structure | None) -> list[NamedGrammar]:
        """The first of them is the whole answer's."""
        if structure is not None and not use.callable:
            return [_named("answer", structure.grammar)]
        bodies = ["calls"] if structure is None else ["calls", "@structure"]
        rules = [f"start: {' | '.join(bodies)}", self.tools.calls(use.callable, use.is_parallel, self._marker)]
        rules += [f"arguments_{i}: @schema_{i}" for i in range(len(use.callable))]
        schemas = [_named(f"schema_{i}", _arguments(tool)) for i, tool in enumerate(use.callable)]
        structures = [] if structure is None else [_named("structure", structure.grammar)]
        return [_named("answer", {"lark_grammar": "\n".join(rules)}), *schemas, *structures]

    def _after_thoughts(self, reasoning: str) -> NamedGrammar:
        """The grammar holds for what follows the thoughts."""
        text = "/(.|\\n)*/"
        is_token = CLOSE in self.mark_ids
        thoughts = (
            f"thoughts: {text} {self._marker(CLOSE)}" if is_token else f"thoughts[suffix={json.dumps(CLOSE)}]: {text}"
        )
        space = "SPACE: /\\n*/"
        start = "thoughts SPACE @answer"
        if reasoning == "marked":
            start = f"({self._marker(OPEN)} {start}) | @answer"
        return _named("thinking", {"lark_grammar": f"start: {start}\n{thoughts}\n{space}\n"})

    def _marker(self, text: str) -> str:
        return f"<[{self.mark_ids[text]}]>" if text in self.mark_ids else json.dumps(text)

    def _problem(self, grammar: str) -> str:
        return self.grammars.problem(grammar) if self.grammars else "this model's tokenizer cannot follow grammars"

    def _located(self, problem: str, use: ToolUse, structure: Structure | None) -> Exception:
        """The problem of the whole with the name of the part that has it."""
        parts = [] if structure is None or use.is_required else [(structure.param, structure.grammar)]
        parts += [(f"{tool.param}.parameters", _arguments(tool)) for tool in use.callable]
        deadline_s = time.monotonic() + LOCATING_S
        for param, grammar in parts if len(parts) > 1 else ():
            if time.monotonic() > deadline_s:
                break
            own = self._problem(json.dumps({"grammars": [grammar]}, ensure_ascii=False))
            if own:
                return bad_request(f"'{param}' cannot be followed: {own}.", param)
        param = parts[0][0] if len(parts) == 1 else "tools"
        return bad_request(f"'{param}' cannot be followed: {problem}.", param)


def _arguments(tool: Tool) -> Grammar:
    check_schema_size(tool.parameters, f"{tool.param}.parameters")
    parameters = tool.parameters
    if not tool.parameters.get("properties") and len(tool.parameters) <= 2:
        parameters = {**tool.parameters, "additionalProperties": False}  # a function without arguments
    return json_grammar(parameters, is_strict=tool.is_strict)


def _named(name: str, grammar: Grammar) -> NamedGrammar:
    return {"name": name, **grammar}


def answer_style(tokenizer: ModelTokenizer, vocab_size: int) -> AnswerStyle:
    """Told from the model's chat template and vocabulary."""
    source = tokenizer.template.source
    own = response_format(tokenizer.response_template, source, tokenizer.special_ids)
    reads_calls = own is not None and own.reads_calls
    tools = tool_format_of(source, tokenizer.template.takes_system, reads_calls)
    marks = (*tools.markers, OPEN, CLOSE)
    return AnswerStyle(
        tools=tools,
        reasoning=Reasoning.of(source),
        grammars=tokenizer.grammar_check(vocab_size),
        mark_ids=tokenizer.added_ids(marks),
        hidden_ids=tuple(tokenizer.added_ids(marks, is_special=True).values()),
        own=own,
    )
