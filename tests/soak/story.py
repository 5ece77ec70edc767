"""What one client of the soak does, and its judgement of how that ended."""

import contextlib
import http.client
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.streams import StreamReader, chat, chat_body, resume

# What may be said to a client while everything around it is killed. Nothing else may.
HONEST_CODES = frozenset({"unavailable", "queue_full", "rate_limit_exceeded"})
END_S = 240.0  # so long after its start every request has ended, however much was broken
RESUME_TRIES = 100
RESUME_PAUSE_S = 0.2


@dataclass(frozen=True)
class Question:
    """A greedy request; `answer` is its text when nothing disturbs it."""

    text: str
    num_tokens: int
    answer: str = ""

    @property
    def body(self) -> dict[str, Any]:
        return chat_body(self.num_tokens, messages=[{"role": "user", "content": self.text}])


class Storyteller:
    """Asks one question after the other in the ways clients have, and counts how each ended.

    `urls` gives the API servers of the moment. What may never happen is collected in `faults`.
    """

    def __init__(self, seed: str, urls: Callable[[], list[str]], questions: list[Question]) -> None:
        self.endings: Counter[str] = Counter()
        self.faults: list[str] = []
        self._random = random.Random(seed)
        self._urls = urls
        self._questions = questions

    def tell(self) -> None:
        """One request from its start to its end."""
        question = self._random.choice(self._questions)
        way = self._random.choice([self._stream, self._stream, self._resumable, self._whole, self._vanish])
        try:
            ending = way(question)
        except AssertionError as error:
            ending = "fault"
            self.faults.append(f"{way.__name__.strip('_')}: {error}")
        except ConnectionError:
            ending = "no connection"  # the server was dead at that moment
        self.endings[ending] += 1

    def _stream(self, question: Question) -> str:
        reader = chat(self._url(), question.body).wait_for_end(END_S)
        return self._ending(reader, reader.text, question)

    def _resumable(self, question: Question) -> str:
        reader = chat(self._url(), question.body, **{"Headrace-Resume": "true"}).wait_for_end(END_S)
        text, after, num_tries = reader.text, max(reader.ids, default=0), 0
        while not reader.is_done and after > 0 and num_tries < RESUME_TRIES:
            num_tries += 1
            try:
                rest = resume(self._url(), reader.job_id, after).wait_for_end(END_S)
            except ConnectionError:
                time.sleep(RESUME_PAUSE_S)
                continue
            assert rest.ids == list(range(after + 1, after + 1 + len(rest.ids))), f"numbers {rest.ids} after {after}"
            text, after = text + rest.text, max(rest.ids, default=after)
            if rest.is_done:
                return "resumed, " + self._ending(rest, text, question)
        return self._ending(reader, text, question)

    def _whole(self, question: Question) -> str:
        address = self._url().removeprefix("http://")
        with contextlib.closing(http.client.HTTPConnection(address, timeout=END_S)) as connection:
            payload = json.dumps(question.body)
            connection.request("POST", "/v1/chat/completions", payload, {"Content-Type": "application/json"})
            try:
                body = json.loads(connection.getresponse().read())
            except (ConnectionError, http.client.HTTPException):
                return "connection lost"
        if "error" in body:
            return _refusal(body["error"])
        text = body["choices"][0]["message"]["content"]
        assert text == question.answer, f"text {text!r} in place of {question.answer!r}"
        return "whole, exact"

    def _vanish(self, question: Question) -> str:
        reader = chat(self._url(), question.body)
        num_chunks = self._random.randrange(question.num_tokens)
        reader.wait_for(lambda: len(reader.chunks) >= num_chunks, END_S)
        reader.hang_up()
        assert question.answer.startswith(reader.text), f"text {reader.text!r} is no start of {question.answer!r}"
        return "vanished"

    def _url(self) -> str:
        return self._random.choice(self._urls())

    def _ending(self, reader: StreamReader, text: str, question: Question) -> str:
        assert question.answer.startswith(text), f"text {text!r} is no start of {question.answer!r}"
        if reader.error is not None:
            return _refusal(reader.error)
        if not reader.is_done:
            return "connection lost"
        finishes = [choice["finish_reason"] for chunk in reader.chunks for choice in chunk["choices"]]
        assert [finish for finish in finishes if finish] == ["length"], f"finish reasons {finishes}"
        assert text == question.answer, f"text {text!r} in place of {question.answer!r}"
        return "exact"


def _refusal(error: dict[str, Any]) -> str:
    assert error["code"] in HONEST_CODES, f"error {error}"
    return f"refused: {error['code']}"
