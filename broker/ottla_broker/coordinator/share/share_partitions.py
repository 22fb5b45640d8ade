"""The share partitions of the partitions that this broker leads. Kafka: ``SharePartitionManager``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.share.key_reader import Run
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.settings import SettingsOf
from ottla_broker.coordinator.share.share_partition import (
    AcquisitionLock,
    InTurns,
    SharePartition,
    Work,
    copy_of,
)
from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.share.tally import DeliveryTally
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError

_FAILED_SECONDS: Final = 0.5
"""For so long a share partition whose state couldn't be read isn't loaded again."""
_MOST_FAILED: Final = 5_000
_MOST_TALLIES: Final = 1_000
"""Groups that are counted for; beyond that, those that were first used are forgotten."""


class SharePartitions:
    """Owned by the loop thread. A listener of the replica manager (``on_leader``, ``on_stop``).

    Attributes:
        tallies: what became of groups' records since the broker's start, by group.
    """

    def __init__(
        self, persister: Persister, settings_of: SettingsOf, clock: Clock, run: Run, in_turns: InTurns
    ) -> None:
        """``run`` runs a function on a thread, ``in_turns`` a generator on the loop."""
        self.settings_of = settings_of
        self.tallies: dict[str, DeliveryTally] = {}
        self._persister = persister
        self._clock = clock
        self._run = run
        self._in_turns = in_turns
        self._beginning: deque[Work] = deque()
        self._locks = Deadlines(clock, _timed_out)
        self._found: dict[ShareKey, SharePartition] = {}
        # Those that failed last: until when, and why.
        self._failed: dict[ShareKey, tuple[float, KafkaError]] = {}

    def find(self, key: ShareKey) -> SharePartition | None:
        return self._found.get(key)

    def get(self, key: ShareKey, partition: Partition) -> SharePartition:
        """The share partition, which may have to be loaded first.

        Raises KafkaError: this broker doesn't lead, or the state couldn't be read a moment ago.
        """
        partition.check_leader()
        found = self._found.get(key)
        if found is not None:
            if found.partition is partition and found.leader_epoch == partition.leader_epoch:
                return found
            found.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        failed = self._failed.get(key)
        if failed is not None:
            if self._clock.monotonic() < failed[0]:
                raise copy_of(failed[1])
            del self._failed[key]
        found = self._found[key] = SharePartition(
            key,
            partition,
            self._persister,
            self.settings_of,
            self._clock,
            self._locks,
            self._forget,
            self._run,
            self._begin,
            self._tally_of(key.group_id),
        )
        found.load()
        return found

    @property
    def loaded(self) -> Collection[SharePartition]:
        """Those that sessions use, or that have something under way."""
        return self._found.values()

    def _tally_of(self, group_id: str) -> DeliveryTally:
        tally = self.tallies.get(group_id)
        if tally is None:
            if len(self.tallies) >= _MOST_TALLIES:
                del self.tallies[next(iter(self.tallies))]
            tally = self.tallies[group_id] = DeliveryTally()
        return tally

    def _begin(self, work: Work) -> None:
        """Begin one share partition after the other: each may decompress a batch."""
        self._beginning.append(work)
        if len(self._beginning) == 1:
            self._in_turns(self._begin_all())

    def _begin_all(self) -> Work:
        while self._beginning:
            yield from self._beginning[0]
            self._beginning.popleft()

    def _forget(self, share: SharePartition) -> None:
        if self._found.get(share.key) is share:
            del self._found[share.key]
        if share.failure is not None:
            if len(self._failed) >= _MOST_FAILED:
                del self._failed[next(iter(self._failed))]
            self._failed[share.key] = self._clock.monotonic() + _FAILED_SECONDS, share.failure

    def on_leader(self, partition: Partition) -> None:
        """A new epoch: the state is read again, so that earlier leaders are fenced."""
        self._close(
            lambda share: share.partition is partition and share.leader_epoch != partition.leader_epoch
        )

    def on_stop(self, topic: str, partition: int) -> None:
        self._close(lambda share: share.partition.topic == topic and share.key.partition == partition)

    def close(self) -> None:
        self._close(lambda _: True)
        self._locks.close()

    def _close(self, chosen: Callable[[SharePartition], bool]) -> None:
        for share in [each for each in self._found.values() if chosen(each)]:
            share.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))


def _timed_out(lock: Deadline) -> None:
    assert isinstance(lock, AcquisitionLock)
    lock.partition.lock_timed_out(lock)
