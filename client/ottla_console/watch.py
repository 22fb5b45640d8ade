"""A session's view of the cluster: state, findings, rates of topics, and the lag of groups over time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_cli.cluster.doctor.checks import findings_of
from ottla_cli.cluster.doctor.gathered import Gathered
from ottla_cli.cluster.state import ClusterState, log_dirs, minimums_of, moves_of
from ottla_cli.groups.lag import History, Look, look_of
from ottla_cli.groups.places import Kept, groups_in_zookeeper, lag_in_zookeeper, lag_of
from ottla_cli.shared.findings import Finding
from ottla_cli.shared.timefmt import now_ms
from ottla_client.errors import ClientError
from ottla_client.types import IN_ZOOKEEPER, OffsetSpec, TopicPartition

from .cached import Cached, pause_after
from .checks import Checks

if TYPE_CHECKING:
    from ottla_client.admin import Admin, GroupListing, LogDir, PartitionLag, TransactionListing
    from ottla_client.types import TopicMetadata
    from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper

AT_ONCE: Final = 8
_SIZES_SECONDS: Final = 300.0
_SIZES_ASKED: Final = "sizes are being asked for"
_FIRST_SECONDS: Final = 0.25
"""The longest wait of the first page for what takes brokers longest; without it, it follows while the page is open."""
_MOST_SECONDS: Final = 45.0
"""The longest that brokers, partitions and lags are left as they were, however long it takes to ask for them."""
_MOST_SLOW_SECONDS: Final = 900.0
_CHECKED_GROUPS: Final = 200
"""So many groups are checked for the overview; `ottla cluster doctor` checks them all."""
_HISTORIES: Final = 2_000
_RATE_SECONDS: Final = 60.0
_TRACED: Final = 120
"""Looks that are kept of a group."""


Lags = Mapping[TopicPartition, "PartitionLag"]


class Sizes(NamedTuple):
    """Data folders by broker, and what couldn't be found out."""

    folders: Mapping[int, tuple[LogDir, ...]]
    remarks: tuple[str, ...]


@dataclass(slots=True)
class Ends:
    """The ends of a topic's partitions at some times, and the rates that follow from them."""

    looks: list[tuple[float, dict[int, int]]] = field(default_factory=list)

    def add(self, at: float, ends: dict[int, int]) -> None:
        self.looks.append((at, ends))
        while at - self.looks[0][0] > _RATE_SECONDS or len(self.looks) > 100:
            self.looks.pop(0)

    def rate(self, partition: int | None = None) -> float | None:
        """Records a second, of a partition or of all; None after a single look."""
        (first, before), (last, after) = self.looks[0], self.looks[-1]
        if last <= first:
            return None
        numbers = after if partition is None else (partition,)
        grown = sum(after[each] - before[each] for each in numbers if each in after and each in before)
        return max(0.0, grown / (last - first))


@dataclass(slots=True)
class Trace:
    """A group's lag for as long as it is watched: the older, the fewer looks."""

    looks: list[Look] = field(default_factory=list)

    def add(self, look: Look) -> None:
        self.looks.append(look)
        if len(self.looks) > _TRACED:
            recent = _TRACED // 4
            self.looks[:-recent] = self.looks[:-recent:2]


class ClusterWatch:
    """Belongs to one Admin, and so to one person's rights."""

    def __init__(
        self, admin: Admin, refresh: float, zookeeper: str | None = None, timeout: float = 30.0
    ) -> None:
        """``zookeeper``: where groups coordinate that brokers can't list; it may take ``timeout`` seconds."""
        self.unlisted: Mapping[str, GroupInZooKeeper] = {}
        """The groups that have consumers in ZooKeeper, and those that brokers don't list."""
        self._zookeeper, self._timeout = zookeeper, timeout
        self.admin = admin
        self.sizes: Cached[Sizes] = Cached(self._look_slowly, _SIZES_SECONDS, _MOST_SLOW_SECONDS)
        self.state: Cached[ClusterState] = Cached(self._look, 0.8 * refresh, _MOST_SECONDS)
        self.groups: Cached[dict[str, GroupListing]] = Cached(self._list_groups, 0.8 * refresh, _MOST_SECONDS)
        self.transactions: Cached[dict[str, TransactionListing]] = Cached(
            admin.list_transactions, 0.8 * refresh, _MOST_SECONDS
        )
        self.checks = Checks(
            admin,
            self.state.get,
            self.groups.get,
            _CHECKED_GROUPS,
            self._trace,
            unlisted=lambda: self.unlisted,
        )
        self.ends: dict[str, Ends] = {}
        self.histories: dict[str, History] = {}
        self.traces: dict[str, Trace] = {}
        """The lags of groups since the session began, or the console."""
        self._refresh = 0.8 * refresh
        self._lags: dict[str, tuple[float, Lags | ClientError]] = {}
        self._minimums: dict[str, int] = {}
        self._minimums_until = 0.0

    async def _look_slowly(self) -> Sizes:
        """Look at what takes brokers longest, and changes least."""
        remarks: list[str] = []
        folders = await log_dirs(self.admin, remarks)
        known = self.state.last
        if self.sizes.last is None and known is not None:
            others = [each for each in known.remarks if each != _SIZES_ASKED]
            self.state.amend(replace(known, folders=folders, remarks=(*others, *remarks)))
        return Sizes(folders, tuple(remarks))

    async def _look(self) -> ClusterState:
        remarks: list[str] = []
        loop = asyncio.get_running_loop()
        started = loop.time()
        description, topics, moving = await asyncio.gather(
            self.admin.describe_cluster(),
            self.admin.list_topics(include_internal=True),
            moves_of(self.admin, remarks),
        )
        # Only now: a broker would answer this first, which takes it longest.
        asked = loop.time()
        sizes = await self.sizes.within(max(0.0, started + _FIRST_SECONDS - asked))
        self.state.idle(loop.time() - asked)
        minimums = await self._minimums_of(topics, remarks)
        # They may have come meanwhile.
        sizes = sizes or self.sizes.last or Sizes({}, (_SIZES_ASKED,))
        remarks += sizes.remarks
        return ClusterState(description, topics, minimums, sizes.folders, moving, tuple(remarks))

    async def _minimums_of(self, topics: Mapping[str, TopicMetadata], remarks: list[str]) -> dict[str, int]:
        """min.insync.replicas of the topics that have a replica out of sync: of others it says nothing."""
        now = asyncio.get_running_loop().time()
        if now >= self._minimums_until:
            self._minimums, self._minimums_until = {}, now + _SIZES_SECONDS
        lacking = [
            name
            for name, topic in topics.items()
            if any(len(each.isr) < len(each.replicas) for each in topic.partitions.values())
        ]
        new = [name for name in lacking if name not in self._minimums]
        if new:
            self._minimums |= await minimums_of(self.admin, new, remarks)
        return {name: self._minimums[name] for name in lacking if name in self._minimums}

    async def _list_groups(self) -> dict[str, GroupListing]:
        listed = await self.admin.list_groups()
        if self._zookeeper is None:
            return listed
        from ottla_client.admin import GroupListing
        from ottla_client.zookeeper_consumer.groups import connected

        async with connected(self._zookeeper, self._timeout) as registry:
            self.unlisted = await groups_in_zookeeper(registry, listed)
        others = {
            name: GroupListing(name, IN_ZOOKEEPER, group.state) for name, group in self.unlisted.items()
        }
        return {**listed, **others}

    async def findings(self) -> tuple[list[Finding], list[str], bool]:
        """The findings, the remarks on what is unknown, and whether everything has been looked at once.

        The state of brokers and partitions is up to date. Settings, groups and transactions are checked piece by piece
        in the background, as long as pages ask.
        """
        state = await self.state.get()
        self.checks.advance()
        seen = self.checks.seen or Gathered(state, now_ms())
        return (
            findings_of(replace(seen, state=state)),
            [*state.remarks, *seen.unchecked],
            self.checks.complete,
        )

    async def rates_of(self, topics: Mapping[str, Collection[int]]) -> dict[str, Ends]:
        """Look at the ends of these topics' partitions, which have leaders."""
        wanted = {
            TopicPartition(name, number): OffsetSpec.LATEST
            for name, numbers in topics.items()
            for number in numbers
        }
        if not wanted:
            return {}
        now = asyncio.get_running_loop().time()
        for name in topics:
            its = self.ends.get(name)
            if its is None or now - its.looks[-1][0] >= self._refresh:
                break
        else:
            return {name: self.ends[name] for name in topics}
        listed = await offsets_known(self.admin, wanted)
        now = asyncio.get_running_loop().time()
        by_topic: dict[str, dict[int, int]] = {name: {} for name in topics}
        for partition, offset in listed.items():
            by_topic[partition.topic][partition.partition] = offset
        for name, ends in by_topic.items():
            self.ends.setdefault(name, Ends()).add(now, ends)
        _bound(self.ends, by_topic)
        return {name: self.ends[name] for name in topics}

    async def lags_of(self, names: Mapping[str, Kept]) -> dict[str, Lags | ClientError]:
        """The lags of some groups, which their histories get as well. Each name has where the group's offsets are.

        They are kept for a while that grows with what it took to ask for them.
        """
        free = asyncio.Semaphore(AT_ONCE)
        loop = asyncio.get_running_loop()
        started = loop.time()
        old = [name for name in names if name not in self._lags or self._lags[name][0] <= started]

        async def one(name: str) -> Lags | ClientError:
            async with free:
                try:
                    unlisted = self.unlisted.get(name)
                    if unlisted is not None:
                        return await lag_in_zookeeper(self.admin, name, unlisted)
                    return await lag_of(self.admin, name, names[name])
                except ClientError as error:
                    return error

        found = dict(zip(old, await asyncio.gather(*map(one, old)), strict=True))
        now = loop.time()
        until = now + pause_after(now - started, self._refresh, _MOST_SECONDS)
        for name, lags in found.items():
            self._lags[name] = (until, lags)
            if isinstance(lags, ClientError):
                continue
            if lags:
                self.histories.setdefault(name, History()).add(look_of(now, lags.values()))
                self._trace(name, lags)
            else:  # its topics were deleted
                self.histories.pop(name, None)
                self.traces.pop(name, None)
        _bound(self.histories, names)
        _bound(self.traces, names)
        lags_now = {name: self._lags[name][1] for name in names}
        while len(self._lags) > _HISTORIES:
            del self._lags[next(iter(self._lags))]
        return lags_now

    def _trace(self, name: str, lags: Lags) -> None:
        if lags:
            look = look_of(asyncio.get_running_loop().time(), lags.values())
            self.traces.setdefault(name, Trace()).add(look)

    def forget(self) -> None:
        """Something was changed."""
        self._lags.clear()
        for cached in (self.state, self.groups, self.transactions):
            cached.forget()
        self.checks.forget()

    async def close(self) -> None:
        await self.checks.close()
        for cached in (self.sizes, self.state, self.groups, self.transactions):
            await cached.close()


async def offsets_known(
    admin: Admin, wanted: Mapping[TopicPartition, OffsetSpec | int]
) -> dict[TopicPartition, int]:
    """Offsets of the partitions that answer; the others, which have lost their leader, are left out."""
    from ottla_client.admin import PartialError

    try:
        listed = await admin.list_offsets(wanted)
    except PartialError as error:
        listed = error.results
    return {partition: found.offset for partition, found in listed.items()}


def _bound(kept: dict[str, Ends] | dict[str, History] | dict[str, Trace], used: Collection[str]) -> None:
    """Forget the oldest names beyond a bound, but none that is in use."""
    for name in list(kept):
        if len(kept) <= _HISTORIES:
            return
        if name not in used:
            del kept[name]
