"""Only errors are logged: the coordinator logs every rebalance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla_broker import events


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    events.configure("error")
    yield
    events.configure()
