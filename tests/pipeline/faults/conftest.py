import os

import pytest
from tests.support.kills import chance as chance


@pytest.fixture
def rounds() -> int:
    """The number of kills; fewer than elsewhere, because each starts Spark."""
    return int(os.environ.get("OTTLA_FAULT_ROUNDS", "2"))
