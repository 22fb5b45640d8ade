"""Which decoder is taken, and that none is lacked: without numba, without a place for its cache, for small reads."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from tests.pipeline.reading.logs import ALL

from ottla_pipeline.reading import OffsetRange, compiling, engines
from ottla_pipeline.reading.compiled import CompiledEngine
from ottla_pipeline.reading.plain import PlainEngine

FEW = OffsetRange("t", "", 0, 0, 10)
MANY = OffsetRange("t", "", 0, 0, engines.WORTH_COMPILING)


@pytest.fixture
def not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ottla_pipeline.reading.kernels")
    monkeypatch.setattr(engines, "can_compile", engines.can_compile.__wrapped__)
    monkeypatch.setattr(engines, "_without", 0)


def test_the_compiled_one_is_taken_where_it_is_there() -> None:
    assert isinstance(engines.engine_for(FEW, ALL), CompiledEngine)


@pytest.mark.usefixtures("not_loaded")
def test_few_records_are_not_worth_loading_it() -> None:
    assert isinstance(engines.engine_for(FEW, ALL), PlainEngine)


@pytest.mark.usefixtures("not_loaded")
def test_many_small_reads_of_a_process_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_without", engines.WORTH_IN_ALL - 10)
    assert isinstance(engines.engine_for(FEW, ALL), PlainEngine)
    assert isinstance(engines.engine_for(FEW, ALL), CompiledEngine)


@pytest.mark.usefixtures("not_loaded")
def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert isinstance(engines.engine_for(MANY, ALL), PlainEngine)


@pytest.mark.usefixtures("not_loaded")
def test_numba_that_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "ottla_pipeline.reading.kernels", None)
    monkeypatch.delattr("ottla_pipeline.reading.kernels", raising=False)
    with caplog.at_level(logging.WARNING):
        assert not engines.can_compile()
    assert "records are decoded several times slower without it" in caplog.text


@pytest.mark.usefixtures("not_loaded")
def test_numba_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.config.DISABLE_JIT", 1)
    assert not engines.can_compile()


def test_no_place_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba refuses to compile then; without the cache it does."""
    asked: list[bool] = []

    def njit(*signature: Any, cache: bool = False, **options: Any) -> Any:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(compiling, "njit", njit)
    monkeypatch.setattr(compiling, "uncached", set())
    assert compiling.compiled(int)(len) is len
    assert compiling.uncached == {"len"}
    assert asked == [True, False]


def test_what_importing_costs() -> None:
    """Spark imports every package like this one in each worker; neither numpy nor numba is needed to plan."""
    program = (
        "import sys, ottla_pipeline.reading as reading;"
        "reading.OffsetRange('t', '', 0, 0, 1); reading.ReadSettings('h:1');"
        "print([name for name in ('numpy', 'pyarrow', 'numba', 'ottla_client') if name in sys.modules])"
    )
    path = [each for each in sys.path if each]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {program}"],
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
