"""How much tests try of what is drawn at random: a little with every `make test`, much more in `make faults`."""

from __future__ import annotations

import math
import os
from typing import Final

_TIMES: Final = float(os.environ.get("OTTLA_EXAMPLES", "0.6"))


def examples(count: int) -> int:
    """The examples of a property: the suite's ``count`` as often as ``OTTLA_EXAMPLES`` says, or six tenths of it."""
    return math.ceil(count * _TIMES)


def inputs() -> int:
    """The random inputs of a parser, ``OTTLA_BAD_INPUTS``; by default all tests together try 100,000."""
    return int(os.environ.get("OTTLA_BAD_INPUTS", "22000"))
