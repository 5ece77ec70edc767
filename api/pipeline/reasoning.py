"""Models that think before they answer, as far as their chat template tells."""

from dataclasses import dataclass
from typing import Any, Literal

from api.errors import unsupported_parameter

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

OPEN = "<think>"
CLOSE = "</think>"


@dataclass(frozen=True)
class Reasoning:
    thinks: bool
    effort_variable: str  # of the template: reasoning_effort, enable_thinking or none

    @classmethod
    def of(cls, template: str) -> "Reasoning":
        variables = (name for name in ("reasoning_effort", "enable_thinking") if name in template)
        return cls(CLOSE in template or OPEN in template, next(variables, ""))

    def variables(self, effort: Effort | None) -> dict[str, Any]:
        """What the template is told of the effort asked for. Raises ApiError 400 where it cannot be told."""
        if effort is None:
            return {}
        if self.effort_variable == "reasoning_effort":
            return {"reasoning_effort": effort}
        if self.effort_variable == "enable_thinking":
            return {"enable_thinking": effort != "none"}
        if effort != "none" or self.thinks:
            raise unsupported_parameter("reasoning_effort", "null")
        return {}

    def mark_in(self, prompt_end: str) -> str:
        """See AnswerFormat.reasoning. `prompt_end` is where the answer goes on."""
        if not self.thinks:
            return ""
        return "open" if prompt_end.rstrip().endswith(OPEN) else "marked"
