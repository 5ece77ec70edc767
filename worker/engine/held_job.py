"""A job the engine holds: its sequences, the text of each, and how many are still running."""

from collections.abc import Iterable

from worker.engine.adjustments import Adjustment
from worker.engine.answer_text import AnswerText, Piece
from worker.engine.draw import Draw, RowParams
from worker.engine.logprobs import RowLogprobs
from worker.engine.sequence import Sequence
from worker.protocol.event import Delta, Terminal, TokenLogprob, TokenLogprobs
from worker.protocol.job import Job


class HeldJob:
    def __init__(self, job: Job, sequences: list[Sequence], texts: list[AnswerText]) -> None:
        """One sequence and one text for each choice, in order."""
        self.job = job
        self.sequences = sequences
        self._texts = texts
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
        if any(sequence.is_at_limit for sequence in self.unfinished):
            raise ValueError("replay is longer than the answer may be")

    def row_params(self, sequence: Sequence) -> RowParams:
        """How the sequence's next token is drawn."""
        choice = sequence.choice
        return RowParams(self.job.sampling, choice, sequence.num_generated, self._adjustments[choice])

    def accept(self, sequence: Sequence, draw: Draw) -> Delta:
        """Adds a token to a sequence's answer; the delta to publish for it."""
        piece = self._push(sequence, draw.token_id)
        sequence.is_finished = piece.finish is not None
        logprobs = () if draw.logprobs is None else self._told(sequence, piece, draw.token_id, draw.logprobs)
        return Delta(sequence.choice, (draw.token_id,), piece.text, piece.finish, logprobs)

    def terminal(self, failure: str | None = None) -> Terminal:
        """The job's last event: success, or with `failure` the reason why not."""
        num_completion_tokens = sum(sequence.num_generated for sequence in self.sequences)
        return Terminal(
            "succeeded" if failure is None else "failed",
            code="" if failure is None else "engine_error",
            message=failure or "",
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

    def _told(
        self, sequence: Sequence, piece: Piece, token_id: int, logprobs: RowLogprobs
    ) -> tuple[TokenLogprobs, ...]:
        text = self._texts[sequence.choice]
        if not text.is_shown(token_id, piece):
            return ()
        chosen = TokenLogprob(token_id, logprobs.chosen, text.token_bytes(token_id))
        return (
            TokenLogprobs(chosen, tuple(TokenLogprob(id, value, text.token_bytes(id)) for id, value in logprobs.top)),
        )
