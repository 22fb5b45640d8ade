"""How long and with which chances the broker is killed.

``make faults``, or ``OTTLA_FAULT_ROUNDS=50 OTTLA_FAULT_SEED=7 pytest tests/crash``, goes on for longer than the suite
does. The seed decides when and how; a run of many rounds without one takes another each time, and says which.
"""

from __future__ import annotations

import os
import random

import pytest

ROUNDS = int(os.environ.get("OTTLA_FAULT_ROUNDS", "3"))


@pytest.fixture
def rounds() -> int:
    """How many times a test kills its broker."""
    return ROUNDS


@pytest.fixture
def chance() -> random.Random:
    """What decides when to kill and what to damage."""
    seed = os.environ.get("OTTLA_FAULT_SEED")
    number = int(seed) if seed is not None else (1 if ROUNDS <= 3 else random.SystemRandom().randrange(10**6))
    print(f"OTTLA_FAULT_SEED={number}")
    return random.Random(number)
