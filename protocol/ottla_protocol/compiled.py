"""Modules that are compiled from C, where this installation has them.

They do what Python does otherwise, many times as slowly. ``OTTLA_EXTENSION=0`` in the environment leaves them all out.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def load_compiled(name: str, interface: int) -> ModuleType | None:
    """The module of this name; None where there is none, or one that was compiled from other sources.

    ``interface`` is the number that the binary must have as ``INTERFACE``.
    """
    if os.environ.get("OTTLA_EXTENSION") == "0":
        return None
    try:
        module = import_module(name)
    except ImportError:
        return None
    return module if interface == module.INTERFACE else None
