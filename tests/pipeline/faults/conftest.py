"""How often and with which chances jobs are killed: three times in the suite, more often in `make faults`."""

from __future__ import annotations

import os
import random

import pytest

ROUNDS = int(os.environ.get("OTTLA_FAULT_ROUNDS", "3"))


@pytest.fixture
def rounds() -> int:
    """How many times a test kills."""
    return ROUNDS


@pytest.fixture
def chance() -> random.Random:
    """What decides when and how."""
    seed = os.environ.get("OTTLA_FAULT_SEED")
    number = int(seed) if seed is not None else (1 if ROUNDS <= 3 else random.SystemRandom().randrange(10**6))
    print(f"OTTLA_FAULT_SEED={number}")
    return random.Random(number)
