"""Chooses a read's decoder: the compiled one if it is loaded already or worth loading, otherwise the plain one."""

from __future__ import annotations

import logging
import sys
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from .plain import PlainEngine

if TYPE_CHECKING:
    from .compiled import CompiledEngine
    from .ranges import OffsetRange

log = logging.getLogger("ottla_pipeline")

WORTH_COMPILING: Final = 100_000
"""With fewer records, loading the compiled loops (0.4 s per process) takes longer than plain decoding."""


WORTH_IN_ALL: Final = 400_000
"""Records of small ranges after which a process loads the loops anyway: a stream will bring more."""

_without = 0


def engine_for(range: OffsetRange, wanted: tuple[str, ...]) -> CompiledEngine | PlainEngine:
    global _without
    size = range.end - range.start
    if (compiled_already() or size >= WORTH_COMPILING or _without >= WORTH_IN_ALL) and can_compile():
        from .compiled import CompiledEngine

        return CompiledEngine(range, wanted)
    _without += size
    return PlainEngine(range, wanted)


def compiled_already() -> bool:
    """Whether this process has loaded the compiled loops: loading others then costs little."""
    return sys.modules.get("ottla_pipeline.reading.kernels") is not None


@cache
def can_compile() -> bool:
    """Whether the compiled loops can be loaded; logs once if numba is installed and fails."""
    if find_spec("numba") is None:
        return False
    try:
        import numba.core.config

        if getattr(numba.core.config, "DISABLE_JIT", 0):
            return False
        from . import kernels
    except Exception as error:
        # Any failure of numba on this machine: the plain decoder gives the same records.
        why = str(error).partition("\n")[0]
        log.warning("numba can't be used, records are decoded several times slower without it: %s", why)
        return False
    return kernels is not None
