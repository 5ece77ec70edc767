"""A job the engine holds: its sequences, the text of each, and how many are still running."""

from collections.abc import Iterable
from collections.abc import Sequence as ListLike
from dataclasses import replace

import torch

from worker.engine.adjustments import Adjustment
from worker.engine.answer_text import AnswerText, Piece
from worker.engine.draw import Draw, RowParams
from worker.engine.grammar import AnswerGrammar, GrammarFailed
from worker.engine.logprobs import RowLogprobs
from worker.engine.sequence import Sequence
from worker.protocol.event import Delta, Terminal, TokenLogprob, TokenLogprobs
from worker.protocol.job import Job


class HeldJob:
    def __init__(self, job: Job, sequences: list[Sequence], texts: list[AnswerText]) -> None:
        """One sequence and one text for each choice, in order."""
        self.job = job
        self.sequences = sequences
        self.grammars: list[AnswerGrammar] = []  # one for each choice of a job with a grammar, once they are made
        self._texts = texts
        self._prompt_logprobs: dict[int, list[TokenLogprobs | None]] = {}  # by choice, of prompts being computed
        self._adjustments: list[Adjustment | None] = [None] * len(sequences)
        if Adjustment.is_wanted(job.sampling):
            self._adjustments = [
                Adjustment(job.sampling, sequence.token_ids, text.end_token_ids)
                for sequence, text in zip(sequences, texts, strict=True)
            ]

    @property
    def unfinished(self) -> list[Sequence]:
        return [sequence for sequence in self.sequences if not sequence.is_finished]

    def replay(self, deltas: Iterable[Delta]) -> None:
        """Brings the sequences to where they were after these deltas. Raises ValueError when they do not belong here.

        The tokens wait to be computed again; their text is out already and is not produced twice.
        """
        for delta in deltas:
            if not 0 <= delta.choice < len(self.sequences) or self.sequences[delta.choice].is_finished:
                raise ValueError(f"replay of choice {delta.choice}, which has ended or never was")
            sequence = self.sequences[delta.choice]
            for token_id in delta.token_ids:
                self._push(sequence, token_id)
            sequence.is_finished = delta.finish is not None
        if any(sequence.is_at_limit and sequence.num_generated for sequence in self.unfinished):
            raise ValueError("replay is longer than the answer may be")

    def begin_grammars(self, grammars: list[AnswerGrammar]) -> None:
        """Sets each choice's grammar to where the choice is. Raises GrammarFailed."""
        for sequence, grammar in zip(self.sequences, grammars, strict=True):
            for token_id in sequence.token_ids[sequence.num_prompt_tokens :]:
                grammar.push(token_id)
        self.grammars = grammars

    def grammar_of(self, sequence: Sequence) -> AnswerGrammar | None:
        return self.grammars[sequence.choice] if self.grammars else None

    def row_params(self, sequence: Sequence, allowed: torch.Tensor | None = None) -> RowParams:
        """How the sequence's next token is drawn. `allowed`: what its grammar allows, see RowParams."""
        choice = sequence.choice
        return RowParams(self.job.sampling, choice, sequence.num_generated, self._adjustments[choice], allowed)

    def tell_prompt(self, sequence: Sequence, first: int, logprobs: ListLike[RowLogprobs]) -> None:
        """Notes the log-probabilities of prompt tokens, from place `first` on, for the sequence's first delta."""
        told = self._prompt_logprobs.setdefault(sequence.choice, [None] * sequence.num_prompt_tokens)
        for place, row in enumerate(logprobs, start=first):
            told[place] = self._token_logprobs(sequence, sequence.token_ids[place], row)

    def accept(self, sequence: Sequence, draw: Draw) -> Delta:
        """Adds a token to a sequence's answer; the delta to publish for it. Raises GrammarFailed."""
        piece = self._push(sequence, draw.token_id)
        grammar = self.grammar_of(sequence)
        if grammar is not None:
            grammar.push(draw.token_id)
            if grammar.is_complete and piece.finish != "stop":
                piece = self._ended(sequence, piece)
        sequence.is_finished = piece.finish is not None
        logprobs = () if draw.logprobs is None else self._told(sequence, piece, draw.token_id, draw.logprobs)
        return self._delta(sequence, (draw.token_id,), piece, logprobs)

    def accept_prompt_alone(self, sequence: Sequence) -> Delta:
        """The delta of a choice whose answer may have no token."""
        sequence.is_finished = True
        return self._delta(sequence, (), Piece("", "length"), ())

    def terminal(self, failure: Exception | None = None) -> Terminal:
        """The job's last event: success, or with `failure` the reason why not."""
        code, message = ("", "") if failure is None else _told_of(failure)
        num_completion_tokens = sum(sequence.num_generated for sequence in self.sequences)
        return Terminal(
            "succeeded" if failure is None else "failed",
            code=code,
            message=message,
            num_prompt_tokens=self.job.num_prompt_tokens,
            num_completion_tokens=num_completion_tokens,
            num_cached_tokens=self._num_cached_tokens,
        )

    @property
    def _num_cached_tokens(self) -> int:
        """Prompt tokens that need not be computed. A prompt counts once, whatever its further answers share with it."""
        return sum(each.num_cached_tokens or 0 for each in self.sequences if each.is_first_of_prompt)

    def _push(self, sequence: Sequence, token_id: int) -> Piece:
        sequence.append([token_id])
        adjustment = self._adjustments[sequence.choice]
        if adjustment is not None:
            adjustment.add(token_id)
        return self._texts[sequence.choice].push(token_id, sequence.is_at_limit)

    def _ended(self, sequence: Sequence, piece: Piece) -> Piece:
        """A complete grammar ends the answer there and then: only an end token could follow."""
        held_back = self._texts[sequence.choice].close() if piece.finish is None else ""
        return replace(piece, text=piece.text + held_back, finish="stop")

    def _delta(
        self, sequence: Sequence, token_ids: tuple[int, ...], piece: Piece, logprobs: tuple[TokenLogprobs, ...]
    ) -> Delta:
        prompt_logprobs = tuple(self._prompt_logprobs.pop(sequence.choice, ()))
        return Delta(
            sequence.choice, token_ids, piece.text, piece.finish, logprobs, prompt_logprobs, piece.matched_stop
        )

    def _told(
        self, sequence: Sequence, piece: Piece, token_id: int, logprobs: RowLogprobs
    ) -> tuple[TokenLogprobs, ...]:
        is_shown = self._texts[sequence.choice].is_shown(token_id, piece)
        return (self._token_logprobs(sequence, token_id, logprobs),) if is_shown else ()

    def _token_logprobs(self, sequence: Sequence, token_id: int, logprobs: RowLogprobs) -> TokenLogprobs:
        text = self._texts[sequence.choice]
        chosen = TokenLogprob(token_id, logprobs.chosen, text.token_bytes(token_id))
        top = tuple(TokenLogprob(id, value, text.token_bytes(id)) for id, value in logprobs.top)
        return TokenLogprobs(chosen, top)


def _told_of(failure: Exception) -> tuple[str, str]:
    """Code and message. A grammar is the request's own, and some show only on the way that they lead nowhere."""
    if isinstance(failure, GrammarFailed):
        return "invalid_request", f"The answer cannot follow its grammar: {failure}."
    return "engine_error", f"{type(failure).__name__}: {failure}"
