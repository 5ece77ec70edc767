"""What a connection remembers is bounded, and the latest is what it remembers."""

from api.responses.known import Remembered
from api.responses.memory import MAX_REMEMBERED, ConversationMemory


def conversation(num_bytes: int) -> Remembered:
    return Remembered(({"text": "x" * num_bytes},), ())


def test_the_oldest_is_forgotten_when_there_are_too_many() -> None:
    memory = ConversationMemory()
    for i in range(MAX_REMEMBERED + 2):
        memory.add(str(i), conversation(1))
    assert list(memory) == [str(i) for i in range(2, MAX_REMEMBERED + 2)]


def test_the_oldest_are_forgotten_when_they_are_too_large() -> None:
    memory = ConversationMemory(1000)
    for i in range(3):
        memory.add(str(i), conversation(400))
    memory.add("too large", conversation(1000))
    assert list(memory) == ["1", "2"]
    assert memory["2"] == conversation(400)
    memory.add("3", conversation(900))
    assert list(memory) == ["3"]
