"""The record engine: the module ``records/_records``, compiled from C, where this installation has it.

It does what Python does otherwise, many times as slowly. ``OTTLA_EXTENSION=0`` in the environment leaves it out.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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
        try:
            module = import_module(_NAME)
        except ModuleNotFoundError:
            module = _from_archive()
    except (ImportError, OSError):
        return None
    return module if module.INTERFACE == INTERFACE else None


def _from_archive() -> ModuleType:
    """Import the engine from a zip file, where Python itself looks for no binaries: out of memory, on Linux alone.

    Raises ImportError, OSError.
    """
    from importlib.machinery import ExtensionFileLoader, ModuleSpec
    from importlib.util import find_spec, module_from_spec
    from zipimport import zipimporter

    package, _, stem = _NAME.rpartition(".")
    found: Any = find_spec(package)
    archive = None if found is None else found.loader
    if not hasattr(os, "memfd_create") or not isinstance(archive, zipimporter):
        raise ImportError(_NAME)
    (folder,) = found.submodule_search_locations or ("",)
    binary = archive.get_data(os.path.join(folder, f"{stem}.abi3.so"))
    with open(os.memfd_create(stem), "wb") as memory:
        memory.write(binary)
        memory.flush()
        loader = ExtensionFileLoader(_NAME, f"/proc/self/fd/{memory.fileno()}")
        module = module_from_spec(ModuleSpec(_NAME, loader, origin=loader.path))
        loader.exec_module(module)
    sys.modules[_NAME] = module
    return module
