"""Compiles the loops of ``kernels`` by numba.

Only that module imports it: importing numba takes 0.3 s, and compiling takes some seconds, once per machine if a cache
can be written. Numba renews a cached loop only when the loop's own file changes. So a loop's callees are in the same
file, except for those at the end of this one.
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

uncached: set[str] = set()
"""The loops that every process has to compile itself, without a cache."""


def compiled(*signature: Any) -> Callable[[F], F]:
    """Compile now, or load from the cache; works without a cache if none can be written."""

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
"""As ``inlined``, for functions that the compiler finds too large to inline."""
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
    """An array's address, as int64: passing it is cheaper than passing the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begin = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(begin, context.get_value_type(types.int64))

    return types.int64(data), generate


def _load(context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
    place = builder.inttoptr(builder.add(*arguments), context.get_value_type(kind).as_pointer())
    return builder.load(place, align=1)


@_intrinsic
def octet(typing: Any, begin: Any, at: Any) -> Any:
    """The byte at an offset from an address, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(
            _load(context, builder, types.uint8, arguments), context.get_value_type(types.int64)
        )

    return types.int64(types.int64, types.int64), generate


@_intrinsic
def word(typing: Any, begin: Any, at: Any) -> Any:
    """The eight bytes at an offset from an address, as a uint64 in the machine's byte order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(context, builder, types.uint64, arguments)

    return types.uint64(types.int64, types.int64), generate


@_intrinsic
def lowest_bit(typing: Any, number: Any) -> Any:
    """The index of the lowest bit set in a uint64; 64 for 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.false_bit)

    return types.int64(types.uint64), generate


@compiled(types.int64)
def _probe(number: int) -> int:
    """Shows, before the others are compiled, whether there is a cache."""
    return number
