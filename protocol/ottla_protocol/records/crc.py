"""CRC-32C (Castagnoli), the checksum of a version 2 record batch.

The arithmetic is the C extension of the package ``crc32c``, in hardware where the processor has it. That
package's ``__init__`` asks ``importlib.metadata`` for its own version, which costs more start-up time than
everything else that is needed here, so the extension module inside the package is loaded directly; where it
cannot be found that way the ordinary import is used.
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
        """CRC-32C of ``data`` as an unsigned 32-bit number, continuing from ``value``."""
        ...

else:
    # The C function itself: a Python wrapper around it would cost as much as the checksum of a small batch.
    crc32c = _extension_crc32c
