"""How loops are compiled by numba, for the modules that have some: ``kernels`` here, and those of who reads values.

Imported by them alone: importing numba takes 0.3 s, and compiling, once a machine where a cache can be written, some
seconds. Numba's cache of a loop is renewed when the loop's own file changes, and by nothing else: what a loop calls
stands in its file, but for what is at the end here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numba.core.cgutils
import numba.extending

F = TypeVar("F", bound=Callable[..., Any])

# Numba's own annotations know nothing of what a function becomes.
types: Any = numba.types
njit: Any = numba.njit
cgutils: Any = numba.core.cgutils

# Read-only, so that both kinds of buffers are taken.
DATA = types.Array(types.uint8, 1, "C", readonly=True)
EDGES = types.Array(types.int32, 1, "C", readonly=True)
OCTETS = types.Array(types.uint8, 1, "C")
INT32S = types.Array(types.int32, 1, "C")
INT64S = types.Array(types.int64, 1, "C")
UINT64S = types.Array(types.uint64, 1, "C")
TABLE = types.Array(types.int64, 2, "C")

uncached: set[str] = set()
"""The loops that every process has to compile for itself."""


def compiled(*signature: Any) -> Callable[[F], F]:
    """Compile now, or take it from the cache; without a cache where there is no place for one."""

    def compile(function: F) -> F:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
        try:
            made: F = njit(signature, cache=True, **options)(function)
        except (RuntimeError, OSError):
            # Numba found no folder that it may write to, or the disk is full.
            uncached.add(function.__name__)
            made = njit(signature, **options)(function)
        return made

    return compile


inlined: Callable[[F], F] = njit(nogil=True, error_model="numpy", boundscheck=False)
merged: Callable[[F], F] = njit(nogil=True, error_model="numpy", boundscheck=False, forceinline=True)
"""As ``inlined``, where the compiler would find it too large for that."""
_intrinsic: Callable[[F], Any] = numba.extending.intrinsic


@_intrinsic
def copy(typing: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """``memcpy``: numba's own copy of a slice is a loop, with checks before it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        into, into_at, of, of_at, count = arguments
        to = context.make_array(signature.args[0])(context, builder, into).data
        begin = context.make_array(signature.args[2])(context, builder, of).data
        cgutils.raw_memcpy(
            builder, builder.gep(to, [into_at]), builder.gep(begin, [of_at]), count, itemsize=1
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


@_intrinsic
def address(typing: Any, data: Any) -> Any:
    """Where an array begins, as int64: functions that take this instead are called, or inlined, for less."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(begin, context.get_value_type(types.int64))

    return types.int64(data), generate


def _load(context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
    place = builder.inttoptr(builder.add(*arguments), context.get_value_type(kind).as_pointer())
    return builder.load(place, align=1)


@_intrinsic
def octet(typing: Any, begin: Any, at: Any) -> Any:
    """The byte at a place behind an address, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(
            _load(context, builder, types.uint8, arguments), context.get_value_type(types.int64)
        )

    return types.int64(types.int64, types.int64), generate


@_intrinsic
def word(typing: Any, begin: Any, at: Any) -> Any:
    """The eight bytes from a place behind an address on, as the machine has them in a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(context, builder, types.uint64, arguments)

    return types.uint64(types.int64, types.int64), generate


@_intrinsic
def lowest_bit(typing: Any, number: Any) -> Any:
    """Which bit of a uint64 is the lowest that is set; 64 of 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.false_bit)

    return types.int64(types.uint64), generate
