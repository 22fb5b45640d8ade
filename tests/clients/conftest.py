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


@pytest.fixture(autouse=True, scope="module")
def _collect_what_they_left() -> Iterator[None]:
    """Collect garbage here, where their warnings are ignored, and not during another test."""
    yield
    gc.collect()


@pytest.fixture(params=KITS, ids=[kit.name for kit in KITS])
def kit(request: pytest.FixtureRequest) -> Kit:
    """Each client in turn."""
    kit: Kit = request.param
    return kit


@pytest.fixture
def kit_by_name() -> dict[str, Kit]:
    return {kit.name: kit for kit in KITS}
