"""Which modules count as compiled."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from ottla_protocol.compiled import load_compiled


def test_a_binary_from_other_sources_and_one_that_is_switched_off_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("ottla_protocol._fake")
    module.INTERFACE = 2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert load_compiled(module.__name__, 2) is module
    assert load_compiled(module.__name__, 1) is None
    assert load_compiled("ottla_protocol._missing", 1) is None
    monkeypatch.setenv("OTTLA_EXTENSION", "0")
    assert load_compiled(module.__name__, 2) is None
