"""How long the cluster is broken, and by which chances.

``make faults MINUTES=30``, or ``OTTLA_FAULT_MINUTES=30 OTTLA_FAULT_SEED=7 pytest tests/faults -s``. The seed decides
what is done, in which order and to whom; a long run without one takes another each time, and says which.
``OTTLA_FAULT_ONLY`` names blows, separated by commas, that are all that is done. What a run showed is left in
``.cache/faults``. ``OTTLA_FAULT_PLANTED=1`` has brokers with defects run, each of which has to be found.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

_SUMMARIES = Path(__file__).parents[2] / ".cache" / "faults"
_SHORT_SECONDS = 50.0


@dataclass(frozen=True)
class Plan:
    """``seconds`` of blows, for how long ZooKeeper is gone when it is stopped, and where a ``summary`` is left."""

    seed: int
    seconds: float
    without_store: float
    only: tuple[str, ...]
    summary: Path | None = None
    producers: tuple[str, ...] = ("idempotent", "plain")


@pytest.fixture
def plan() -> Plan:
    minutes = float(os.environ.get("OTTLA_FAULT_MINUTES") or 0)
    given = os.environ.get("OTTLA_FAULT_SEED")
    seed = int(given) if given else (random.SystemRandom().randrange(10**6) if minutes else 1)
    only = tuple(name.strip() for name in os.environ.get("OTTLA_FAULT_ONLY", "").split(",") if name.strip())
    summary = _SUMMARIES / f"seed-{seed}.txt" if minutes else None
    return Plan(seed, minutes * 60 or _SHORT_SECONDS, 30.0 if minutes > 5 else 10.0, only, summary)
