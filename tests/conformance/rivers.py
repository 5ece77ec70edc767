"""What all tools are asked, and what they must get.

One value alone fits each argument and each field: whatever the model would rather say, the grammar makes it say that.
"""

from typing import Literal

from pydantic import BaseModel

QUESTION = "Where does the river rise?"
NUM = 11  # tokens of an answer that a limit ends
ANSWER = " that gave it a name. The river rises in the"  # of the question alone, so many tokens long
STOP = " hills"  # comes next
RESULT = "In the Alps."  # of the function


class River(BaseModel):
    """A river."""

    name: Literal["Isar"]
    is_long: Literal[True]


ISAR = River(name="Isar", is_long=True)


class RiseOf(BaseModel):
    """Where a river rises."""

    river: Literal["Isar"]
