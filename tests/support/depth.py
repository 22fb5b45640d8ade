"""How much tests try of what is drawn at random: a little with every `make test`, much more in `make faults`."""

from __future__ import annotations

import os
from typing import Final

_TIMES: Final = int(os.environ.get("OTTLA_EXAMPLES", "1"))


def examples(count: int) -> int:
    """The examples of a property, ``OTTLA_EXAMPLES`` times as many as the suite's ``count``."""
    return count * _TIMES


def inputs() -> int:
    """The random inputs of a parser, ``OTTLA_BAD_INPUTS``."""
    return int(os.environ.get("OTTLA_BAD_INPUTS", "15000"))
