"""The answer to a request does not depend on its neighbours, good or bad."""

import json
from typing import Any

from tests.api.http.client import CHAT, COMPLETIONS, answered, chat_body, completion_body, post, text_of
from tests.stack import WebServer
from tests.streams import StreamReader


def body(prompt: list[int], num_tokens: int = 30, **more: Any) -> dict[str, Any]:
    return completion_body(prompt, num_tokens, **{"model": "tiny", **more})


def test_a_seed_gives_the_same_text_in_a_crowd_and_others_differ(tiny: WebServer) -> None:
    def one(temperature: float = 1, **more: Any) -> dict[str, Any]:
        return body([7, 8, 9], temperature=temperature, **more)

    seeded = text_of(answered(tiny, COMPLETIONS, one(seed=5)))
    greedy = text_of(answered(tiny, COMPLETIONS, one(temperature=0)))
    crowd = [one(), one(seed=5), one(temperature=0), one(), one(seed=6), one(seed=5)]
    readers = [StreamReader(tiny.url, COMPLETIONS, each) for each in crowd]
    texts = [completion_text(reader.wait_for_end()) for reader in readers]
    assert [texts[1], texts[2], texts[5]] == [seeded, greedy, seeded]
    assert len({texts[0], texts[3], texts[4], seeded, greedy}) == 5


def completion_text(reader: StreamReader) -> str:
    assert reader.error is None, json.dumps(reader.error)
    return "".join(choice["text"] for chunk in reader.chunks for choice in chunk["choices"])


def test_each_of_many_at_once_gets_its_own_answer(tiny: WebServer) -> None:
    bodies = [body([100 + i] * (1 + i % 5), 10 + i) for i in range(12)]
    alone = [text_of(answered(tiny, COMPLETIONS, each)) for each in bodies]
    readers = [StreamReader(tiny.url, COMPLETIONS, each) for each in bodies]
    assert [completion_text(reader.wait_for_end()) for reader in readers] == alone
    assert len(set(alone)) == 12


def test_bad_requests_beside_a_stream_fail_alone(tiny: WebServer) -> None:
    expected = text_of(answered(tiny, COMPLETIONS, body([42], 200)))
    reader = StreamReader(tiny.url, COMPLETIONS, body([42], 200)).wait_for_chunks(2)
    bad: list[Any] = [
        body([42], temperature=9), body([49152]), body([7], logit_bias={"99999": 1}), body([7], seed=2**70),
        b"{", b"[" * 9000, b'{"model": "tiny", "prompt": "x", "temperature": NaN}',
    ]  # fmt: skip
    assert [post(tiny, COMPLETIONS, each).status_code for each in bad] == [400] * len(bad)
    assert post(tiny, CHAT, chat_body(model="tiny", messages=[{"role": "user", "content": {}}])).status_code == 400
    assert completion_text(reader.wait_for_end()) == expected
