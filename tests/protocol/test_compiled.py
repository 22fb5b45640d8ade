"""Which modules count as compiled."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from ottla_protocol.compiled import INTERFACE, load_engine


def test_a_binary_from_other_sources_and_one_that_is_switched_off_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("ottla_protocol.records._records")
    monkeypatch.delenv("OTTLA_EXTENSION", raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.INTERFACE = INTERFACE  # type: ignore[attr-defined]
    assert load_engine() is module
    monkeypatch.setenv("OTTLA_EXTENSION", "0")
    assert load_engine() is None
    monkeypatch.delenv("OTTLA_EXTENSION")
    module.INTERFACE = INTERFACE - 1  # type: ignore[attr-defined]
    assert load_engine() is None
