"""Fixtures of tests that kill processes: how often, and the random choices.

``make faults``, or ``OTTLA_FAULT_ROUNDS=50 OTTLA_FAULT_SEED=7 pytest tests/crash``, runs more rounds than the suite.
Without a seed, a run of many rounds picks one and prints it.
"""

from __future__ import annotations

import os
import random

import pytest

ROUNDS = int(os.environ.get("OTTLA_FAULT_ROUNDS", "2"))


@pytest.fixture
def rounds() -> int:
    """The number of kills per test."""
    return ROUNDS


@pytest.fixture
def chance() -> random.Random:
    """The random numbers for when and what to kill or damage."""
    seed = os.environ.get("OTTLA_FAULT_SEED")
    number = int(seed) if seed is not None else (1 if ROUNDS <= 3 else random.SystemRandom().randrange(10**6))
    print(f"OTTLA_FAULT_SEED={number}")
    return random.Random(number)
