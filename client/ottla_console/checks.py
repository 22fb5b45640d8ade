"""The checks of `ottla cluster doctor` for a page that stays open: piece by piece, so that they cost brokers little."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_cli.cluster.doctor import command as doctor
from ottla_cli.cluster.doctor.checks import DEAD_LETTERS
from ottla_cli.cluster.doctor.gathered import Gathered
from ottla_cli.cluster.state import ClusterState
from ottla_cli.groups.places import as_description
from ottla_cli.shared.timefmt import now_ms
from ottla_client.errors import ClientError
from ottla_client.types import TopicPartition

if TYPE_CHECKING:
    from ottla_client.admin import Admin, GroupDescription, GroupListing, HangingTransaction, PartitionLag
    from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper

_LOG: Final = logging.getLogger("ottla.console")

SHARE: Final = 0.0012
"""The part of a broker's core that checks may take."""
BURST: Final = 0.03
"""Seconds of a broker's core that they may take at once: enough for some twenty topics and groups."""

# Seconds of a broker's core that each takes, measured with an Ottla broker (bench/measures/console.py): eight settings
# of a topic; a group's description, offsets and lag; a partition whose log has to be opened first, or is open.
_TOPIC_COSTS: Final = 0.00025
_GROUP_COSTS: Final = 0.0013
_PARTITION_COSTS: Final = 0.0005
_OPEN_COSTS: Final = 0.00005
_TOPICS: Final = 40
_GROUPS: Final = 8
_PARTITIONS: Final = 20
"""The sizes of pieces, each of about 10 ms."""

_ROUND_SECONDS: Final = 60.0
"""The least time between the beginnings of two rounds."""
_BETWEEN_SECONDS: Final = 5.0
"""Between the two checks of groups that have members."""
_NO_MEMBERS: Final = ("Empty", "Dead")


class TokenBucket:
    """The time that may be spent: it fills by ``share`` of each second, up to ``burst`` seconds."""

    def __init__(self, share: float = SHARE, burst: float = BURST) -> None:
        self._share, self._burst = share, burst
        self._left = burst
        self._at: float | None = None

    def allows(self, now: float) -> bool:
        """Whether something is left; ``now`` in seconds, of a clock that doesn't go back."""
        if self._at is not None:
            self._left = min(self._burst, self._left + self._share * (now - self._at))
        self._at = now
        return self._left > 0

    def spend(self, seconds: float) -> None:
        """May go below zero; ``allows`` then waits until it is refilled."""
        self._left -= seconds


class _Piece(NamedTuple):
    """A few topics, groups or partitions, which are checked by one call.

    Attributes:
        costs: seconds of a broker's core.
    """

    costs: float
    run: Callable[[], Awaitable[None]]


class Checks:
    """The findings so far. Checking continues while :meth:`advance` is called, as open pages do.

    Attributes:
        seen: what is known of the topics, groups and partitions that exist; None before the first round.
        complete: whether everything has been checked once.
    """

    def __init__(
        self,
        admin: Admin,
        state: Callable[[], Awaitable[ClusterState]],
        groups: Callable[[], Awaitable[Mapping[str, GroupListing]]],
        most_groups: int,
        trace: Callable[[str, Mapping[TopicPartition, PartitionLag]], None],
        budget: TokenBucket | None = None,
        unlisted: Callable[[], Mapping[str, GroupInZooKeeper]] = dict,
    ) -> None:
        """``unlisted``: the groups of which ZooKeeper says more than brokers."""
        self._unlisted = unlisted
        self._in_zookeeper: Mapping[str, GroupInZooKeeper] = {}
        self.seen: Gathered | None = None
        self.complete = False
        self._admin = admin
        self._state, self._groups = state, groups
        self._most_groups = most_groups
        self._trace = trace
        self._budget = budget or TokenBucket()
        self._pieces: deque[_Piece] = deque()
        self._total = 0
        self._next_round = 0.0
        self._task: asyncio.Task[None] | None = None
        self._topic_configs: dict[str, Mapping[str, str]] = {}
        self._described: dict[str, GroupDescription] = {}
        self._later_described: dict[str, GroupDescription] = {}
        self._lags: dict[str, Mapping[TopicPartition, PartitionLag]] = {}
        self._later: dict[str, Mapping[TopicPartition, PartitionLag]] = {}
        self._hanging: dict[TopicPartition, list[HangingTransaction]] = {}
        self._latest: dict[TopicPartition, int] = {}
        self._dead_letters: dict[str, int] = {}
        self._opened: set[TopicPartition] = set()

    @property
    def share(self) -> float:
        """The part of this round that is done, from 0 to 1."""
        return 1 - len(self._pieces) / self._total if self._total else 0.0

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    def advance(self) -> None:
        """Check as much as the budget allows, in the background."""
        if not self.running:
            self._task = asyncio.get_running_loop().create_task(self._advance())
            self._task.add_done_callback(_log_failure)

    def forget(self) -> None:
        """Something was changed: begin a round at once, within the same budget."""
        self._pieces.clear()
        self._next_round = 0.0

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            # Nothing asks for its result any more.
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    async def _advance(self) -> None:
        loop = asyncio.get_running_loop()
        while self._budget.allows(loop.time()):
            if not self._pieces:
                if loop.time() < self._next_round:
                    return
                await self._begin_round()
            piece = self._pieces.popleft()
            self._budget.spend(piece.costs)
            await piece.run()

    async def _begin_round(self) -> None:
        """Check the brokers at once, and plan the checks of topics, groups and partitions."""
        self._next_round = asyncio.get_running_loop().time() + _ROUND_SECONDS
        state, listed = await self._state(), await self._groups()
        self._forget_missing(state, listed)
        seen = await self._check_brokers(state)
        self._pieces = deque(self._plan(seen, listed))
        self._total = len(self._pieces)
        self._carry_over(seen)
        self.seen = seen

    async def _check_brokers(self, state: ClusterState) -> Gathered:
        seen = Gathered(state, now_ms())
        running = [node.id for node in state.description.nodes]
        seen.broker_configs = await doctor.attempt(
            seen, "settings of brokers", doctor.broker_configs(self._admin, running), {}
        )
        seen.descriptors = await doctor.descriptors(seen, stays=True)
        seen.open_transactions = await doctor.attempt(
            seen, "open transactions", doctor.long_open(self._admin), {}
        )
        seen.certificates = await doctor.certificates_of(seen)
        return seen

    def _plan(self, seen: Gathered, listed: Mapping[str, GroupListing]) -> Iterator[_Piece]:
        """The round's pieces, taking turns between groups, topics and partitions."""
        with_members = [name for name, each in listed.items() if each.state not in _NO_MEMBERS]
        names = (with_members + sorted(set(listed) - set(with_members)))[: self._most_groups]
        if len(listed) > len(names):
            seen.unchecked.append(
                f"{len(names):,} of {len(listed):,} groups were checked; ottla cluster doctor checks them all"
            )
        topics = seen.state.topics
        asked = [each for each in doctor.led(topics) if _may_have_records(seen.state, each)]
        turns = zip_longest(
            [self._group_piece(seen, part) for part in _parts(names, _GROUPS)],
            [self._topic_piece(seen, part) for part in _parts(list(topics), _TOPICS)],
            [self._partition_piece(seen, part) for part in _parts(asked, _PARTITIONS)],
        )
        yield from (piece for turn in turns for piece in turn if piece is not None)
        yield self._delivery_piece(seen)

    def _carry_over(self, seen: Gathered) -> None:
        """Begin with what earlier rounds have found; the pieces of this one replace it."""
        # Groups in ZooKeeper are compared with those of the round before.
        seen.later_in_zookeeper = self._unlisted()
        seen.in_zookeeper = {
            name: group for name, group in self._in_zookeeper.items() if name in seen.later_in_zookeeper
        }
        self._in_zookeeper = seen.later_in_zookeeper
        old = self.seen
        seen.topic_configs = self._topic_configs
        seen.groups, seen.later_groups = self._described, self._later_described
        seen.lags, seen.later = self._lags, self._later
        seen.latest, seen.dead_letters = self._latest, self._dead_letters
        if old is not None:
            seen.hanging, seen.deliveries = old.hanging, old.deliveries

    def _forget_missing(self, state: ClusterState, listed: Collection[str]) -> None:
        """Forget the groups, topics and partitions that no longer exist."""
        for of_group in (self._described, self._later_described, self._lags, self._later):
            _drop(of_group, set(of_group).difference(listed))
        for of_topic in (self._topic_configs, self._dead_letters):
            _drop(of_topic, set(of_topic).difference(state.topics))
        self._opened = {each for each in self._opened if each.topic in state.topics}
        for of_partition in (self._latest, self._hanging):
            _drop(of_partition, {each for each in of_partition if each.topic not in state.topics})

    def _delivery_piece(self, seen: Gathered) -> _Piece:
        """The last piece of a round: by then it is known which groups are share groups."""

        async def run() -> None:
            seen.deliveries = await doctor.deliveries(seen, self._described, stays=True)
            self.complete = True

        return _Piece(0.0, run)

    def _topic_piece(self, seen: Gathered, names: list[str]) -> _Piece:
        async def run() -> None:
            found = doctor.topic_configs(self._admin, names)
            self._topic_configs |= await doctor.attempt(seen, "settings of topics", found, {})

        return _Piece(len(names) * _TOPIC_COSTS, run)

    def _partition_piece(self, seen: Gathered, partitions: list[TopicPartition]) -> _Piece:
        """Clocks, hanging transactions and dead letters: brokers open the partitions' logs for these."""

        async def run() -> None:
            seen.now_ms = now_ms()
            latest = doctor.latest(self._admin, partitions)
            self._latest |= await doctor.attempt(seen, "timestamps", latest, {})
            self._opened.update(partitions)
            hanging = self._admin.find_hanging_transactions(partitions)
            found = await doctor.attempt(seen, "hanging transactions", hanging, [])
            _drop(self._hanging, partitions)
            for each in found:
                self._hanging.setdefault(each.partition, []).append(each)
            seen.hanging = [each for its in self._hanging.values() for each in its]
            topics = {each.topic for each in partitions if DEAD_LETTERS.search(each.topic)}
            if topics:
                # All partitions of a topic: the count is the topic's.
                letters = [each for each in doctor.led(seen.state.topics) if each.topic in topics]
                counted = doctor.last_hour(self._admin, letters, now_ms())
                self._dead_letters |= await doctor.attempt(seen, "dead letters", counted, {})

        opened = self._opened.intersection(partitions)
        costs = len(opened) * _OPEN_COSTS + (len(partitions) - len(opened)) * _PARTITION_COSTS
        return _Piece(costs, run)

    def _group_piece(self, seen: Gathered, names: list[str]) -> _Piece:
        async def run() -> None:
            unlisted = {name: group for name, group in self._unlisted().items() if name in names}
            described = await doctor.described(
                self._admin, seen, [name for name in names if name not in unlisted]
            )
            lags = await doctor.lags_of(self._admin, seen, described)
            lags |= await doctor.lags_in_zookeeper(self._admin, seen, unlisted)
            described |= {name: as_description(name, group) for name, group in unlisted.items()}
            for of_group in (self._described, self._lags, self._later_described, self._later):
                _drop(of_group, names)
            self._described |= described
            self._lags |= lags
            watched = [name for name in doctor.watched(described, lags) if name not in unlisted]
            if watched:
                await asyncio.sleep(_BETWEEN_SECONDS)
                self._later_described |= await doctor.described(self._admin, seen, watched)
                later = await doctor.lags_of(self._admin, seen, {name: described[name] for name in watched})
                self._later |= later
                lags |= later
            for name, its in lags.items():
                self._trace(name, its)

        return _Piece(len(names) * _GROUP_COSTS, run)


def _parts(whole: list, size: int) -> list[list]:  # type: ignore[type-arg]
    return [whole[first : first + size] for first in range(0, len(whole), size)]


def _log_failure(task: asyncio.Task[None]) -> None:
    """ClientErrors are not logged: the page already shows that the cluster doesn't answer."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ClientError):
        _LOG.error("checking the cluster failed", exc_info=error)


def _drop(kept: dict, names: Collection[object]) -> None:  # type: ignore[type-arg]
    for name in names:
        kept.pop(name, None)


def _may_have_records(state: ClusterState, partition: TopicPartition) -> bool:
    """Whether any replica has records, or no size is known: an empty log needn't be opened."""
    sizes = [
        folder.replicas[partition].size
        for folders in state.folders.values()
        for folder in folders
        if partition in folder.replicas
    ]
    return not sizes or any(sizes)
