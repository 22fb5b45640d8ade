"""Changes of the in-sync replicas, which a leader proposes and the controller decides (AlterPartition)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla_protocol.errors import ErrorCode


class IsrOutcome(NamedTuple):
    """The controller's answer to an :class:`IsrChange`: an error, or the state that holds now."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


class IsrChange(NamedTuple):
    """A change of the in-sync replicas for the controller to agree to (AlterPartition).

    ``epochs`` are the registrations under which the members of ``isr`` were seen in sync, -1 where unknown: a broker
    that has restarted since then may have lost records and doesn't count (KIP-903). ``on_answer`` takes the answer;
    False means that the controller must be asked again.
    """

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    epochs: tuple[int, ...]
    on_answer: Callable[[IsrChange, IsrOutcome], bool]
