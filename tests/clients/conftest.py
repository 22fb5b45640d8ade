from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kits import KITS, Kit

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the clients' warnings about open sockets and deprecated calls."""
    for item in items:
        if HERE in item.path.parents:
            for what in ("ResourceWarning", "DeprecationWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{what}"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Collect a module's garbage here, where the clients' warnings are ignored, and not during another test.

    Not in a fixture: until the teardown's end, pytest keeps the log records of the test. Their tracebacks keep the
    sockets that kafka-python leaves open when a broker refuses its connections.
    """
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()


@pytest.fixture(params=KITS, ids=[kit.name for kit in KITS])
def kit(request: pytest.FixtureRequest) -> Kit:
    """Each client in turn."""
    kit: Kit = request.param
    return kit


@pytest.fixture
def kit_by_name() -> dict[str, Kit]:
    return {kit.name: kit for kit in KITS}
