"""The compiled part of the cleaner, ``native/``, if this installation has it.

It is C: the offset map, and the two passes over whole batches. Without it the same is done in Python, thirty times as
slowly. ``OTTLA_EXTENSION=0`` in the environment leaves it out.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

_INTERFACE: Final = 1
"""What the binary must offer; one that was compiled from other sources isn't used."""


def load() -> ModuleType | None:
    """The compiled module; None where there is none."""
    if os.environ.get("OTTLA_EXTENSION") == "0":
        return None
    try:
        module = import_module("ottla_broker.log.cleaner._cleaning")
    except ImportError:
        return None
    return module if module.INTERFACE == _INTERFACE else None
