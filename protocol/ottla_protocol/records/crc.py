"""CRC-32C (Castagnoli), the checksum of a version 2 record batch.

The arithmetic is in the C extension of the package ``crc32c``, which uses the processor's instruction if it has one.
The package's ``__init__`` looks up its own version in ``importlib.metadata``, which takes longer than everything else
at start. So the extension module is loaded directly, or imported normally if it isn't found.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Checksum = Callable[[Buffer, int], int]


def _load_extension() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", folders) if folders else None
    if spec is None or spec.loader is None:
        import crc32c as whole_package

        return whole_package.crc32c
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return cast("Callable[..., int]", extension.crc32c)


_extension_crc32c = _load_extension()

if TYPE_CHECKING:

    def crc32c(data: Buffer, value: int = 0) -> int:
        """Return the CRC-32C of ``data`` as an unsigned 32-bit number, continuing from ``value``."""
        ...

else:
    # The C function itself, because a Python wrapper would cost as much as the checksum of a small batch.
    crc32c = _extension_crc32c
