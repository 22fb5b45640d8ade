"""The two ways in which the cleaner works: compiled, and in Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla_protocol.compiled import load_engine

WAYS = ["compiled", "python"]


@contextmanager
def cleaning(way: str) -> Iterator[None]:
    """Have the cleaner work that way. Skips the test if it isn't compiled here."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "python":
            patch.setenv("OTTLA_EXTENSION", "0")
        elif load_engine() is None:
            pytest.skip("the cleaner isn't compiled here")
        yield
