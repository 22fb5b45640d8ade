"""The producer id and epoch that idempotent batches carry (KIP-98)."""

from __future__ import annotations

from typing import NamedTuple

LAST_EPOCH = 32766
"""The last epoch for batches: brokers accept none above 32767, and reserve that for fencing."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer, as brokers know it."""

    producer_id: int
    epoch: int


class ProducerIdHolder:
    """The producer id and epoch for new sequences; ``current`` is None while the cluster has to be asked for one."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: ProducerIdAndEpoch | None = None

    def leave(self, old: ProducerIdAndEpoch) -> None:
        """A partition can't continue with ``old``: raise the epoch, if that hasn't happened."""
        if self.current == old:
            self.current = old._replace(epoch=old.epoch + 1) if old.epoch < LAST_EPOCH else None
