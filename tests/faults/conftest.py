"""The duration and the random seed of the faults.

``make faults MINUTES=30``, or ``OTTLA_FAULT_MINUTES=30 OTTLA_FAULT_SEED=7 pytest tests/faults -s``. The seed decides
on the faults, their order and their targets. A long run without a seed picks one and prints it. ``OTTLA_FAULT_ONLY``
limits the faults to a comma-separated list. A long run also transforms the records exactly once
(``transformers.py``). Reports go to ``.cache/faults``. ``OTTLA_FAULT_PLANTED=1`` runs brokers with defects, each of
which must be found.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

_SUMMARIES = Path(__file__).parents[2] / ".cache" / "faults"
_SHORT_SECONDS = 20.0


@dataclass(frozen=True)
class Plan:
    """``seconds`` of faults, how long ZooKeeper stays stopped, and where the ``summary`` goes."""

    seed: int
    seconds: float
    without_store: float
    only: tuple[str, ...]
    summary: Path | None = None
    producers: tuple[str, ...] = ("idempotent", "plain")
    exactly_once: bool = False
    """Whether programs transform the records into another topic."""


@pytest.fixture
def plan() -> Plan:
    minutes = float(os.environ.get("OTTLA_FAULT_MINUTES") or 0)
    given = os.environ.get("OTTLA_FAULT_SEED")
    seed = int(given) if given else (random.SystemRandom().randrange(10**6) if minutes else 1)
    only = tuple(name.strip() for name in os.environ.get("OTTLA_FAULT_ONLY", "").split(",") if name.strip())
    summary = _SUMMARIES / f"seed-{seed}.txt" if minutes else None
    return Plan(
        seed,
        minutes * 60 or _SHORT_SECONDS,
        30.0 if minutes > 5 else 10.0,
        only,
        summary,
        exactly_once=minutes > 0,
    )
