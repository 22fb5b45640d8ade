"""The record engine: the module ``records/_records``, compiled from C, where this installation has it.

It does what Python does otherwise, many times as slowly. ``OTTLA_EXTENSION=0`` in the environment leaves it out.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

INTERFACE: Final = 4
"""What the module must have as ``INTERFACE``; a binary from other sources isn't used."""
_NAME: Final = "ottla_protocol.records._records"


def load_engine() -> ModuleType | None:
    """The engine; None where there is none, or one that was compiled from other sources."""
    if os.environ.get("OTTLA_EXTENSION") == "0":
        return None
    try:
        module = import_module(_NAME)
    except ImportError:
        return None
    return module if module.INTERFACE == INTERFACE else None
