"""The compiled part of the cleaner, ``native/``, if this installation has it.

It is C: the offset map, and the two passes over whole batches. Without it the same is done in Python, thirty times as
slowly.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from ottla_protocol.compiled import load_compiled

_INTERFACE: Final = 1


def load() -> ModuleType | None:
    """The compiled module; None where there is none."""
    return load_compiled("ottla_broker.log.cleaner._cleaning", _INTERFACE)
