"""The features of a cluster (KIP-584): what its brokers can do, and at which level they do it together."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

TRANSACTION_VERSION: Final = "transaction.version"
"""Level 2 raises a producer's epoch with each transaction, and adds to it what is written (KIP-890)."""


class Features(NamedTuple):
    """The finalized levels, by name, and the epoch that grows with each change; -1 if nothing is known."""

    epoch: int = -1
    levels: Mapping[str, int] = MappingProxyType({})

    @property
    def has_transaction_version_2(self) -> bool:
        return self.levels.get(TRANSACTION_VERSION, 0) >= 2
