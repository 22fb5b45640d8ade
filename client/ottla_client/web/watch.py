"""What a session has seen of the cluster: state, findings, rates of topics, and the lag of groups over time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ..commands.cluster_state import ClusterState, log_dirs, minimums_of, moves_of
from ..commands.doctor import gather
from ..commands.doctor_checks import Finding, Gathered, findings_of
from ..commands.group_lag import History, Look
from ..commands.timefmt import now_ms
from ..errors import ClientError
from ..types import OffsetSpec, TopicPartition
from .cached import Cached, pause_after

if TYPE_CHECKING:
    from ..admin import Admin, GroupListing, LogDir, PartitionLag, TransactionListing

AT_ONCE: Final = 8
_DEEP_SECONDS: Final = 60.0
_BETWEEN_SECONDS: Final = 5.0
"""Between the two looks at groups of a check."""
_SIZES_SECONDS: Final = 300.0
_FIRST_SECONDS: Final = 0.25
"""How long the first page waits for what takes brokers longest; without it, it follows while the page is open."""
_MOST_SECONDS: Final = 45.0
"""The longest that brokers, partitions and lags are left as they were, however long it takes to ask for them."""
_MOST_SLOW_SECONDS: Final = 900.0
_MOST_NEW: Final = 200
_CHECKED_GROUPS: Final = 200
"""So many groups are checked for the overview; `ottla cluster doctor` checks them all."""
_HISTORIES: Final = 2_000
_RATE_SECONDS: Final = 60.0
_TRACED: Final = 120
"""Looks that are kept of a group."""
_NO_MEMBERS: Final = ("Empty", "Dead")


Lags = Mapping[TopicPartition, "PartitionLag"]


class Sizes(NamedTuple):
    """Data folders by broker, min.insync.replicas by topic, and what couldn't be found out."""

    folders: Mapping[int, tuple[LogDir, ...]]
    minimums: Mapping[str, int]
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


def _look_of(at: float, lags: Lags) -> Look:
    behind = [each.seconds for each in lags.values() if each.seconds is not None]
    return Look(at, sum(each.records or 0 for each in lags.values()), max(behind, default=None))


class Watch:
    """Belongs to one Admin, and so to one person's rights."""

    def __init__(self, admin: Admin, refresh: float) -> None:
        self.admin = admin
        self.sizes: Cached[Sizes] = Cached(self._look_slowly, _SIZES_SECONDS, _MOST_SLOW_SECONDS)
        self.state: Cached[ClusterState] = Cached(self._look, 0.8 * refresh, _MOST_SECONDS)
        self.groups: Cached[dict[str, GroupListing]] = Cached(admin.list_groups, 0.8 * refresh, _MOST_SECONDS)
        self.transactions: Cached[dict[str, TransactionListing]] = Cached(
            admin.list_transactions, 0.8 * refresh, _MOST_SECONDS
        )
        self.deep: Cached[Gathered] = Cached(
            self._gather, _DEEP_SECONDS, _MOST_SLOW_SECONDS, _BETWEEN_SECONDS
        )
        self.ends: dict[str, Ends] = {}
        self.histories: dict[str, History] = {}
        self.traces: dict[str, Trace] = {}
        """The lags of groups since the session began, or the console."""
        self._refresh = 0.8 * refresh
        self._lags: dict[str, tuple[float, Lags | ClientError]] = {}

    async def _look_slowly(self) -> Sizes:
        """What takes brokers longest, and changes least."""
        remarks: list[str] = []
        folders = await log_dirs(self.admin, remarks)
        topics = await self.admin.list_topics(include_internal=True)
        sizes = Sizes(folders, await minimums_of(self.admin, topics, remarks), tuple(remarks))
        if self.sizes.last is None:
            self.state.forget()
        return sizes

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
        sizes = await self.sizes.within(max(0.0, started + _FIRST_SECONDS - loop.time()))
        # They may have come meanwhile.
        sizes = sizes or self.sizes.last or Sizes({}, {}, ("sizes and settings are being asked for",))
        remarks += sizes.remarks
        minimums = dict(sizes.minimums)
        new = [name for name in topics if name not in minimums] if minimums else []
        if new:
            # Made since the last look at all: only these are asked for.
            minimums |= await minimums_of(self.admin, new[:_MOST_NEW], remarks)
        return ClusterState(description, topics, minimums, sizes.folders, moving, tuple(remarks))

    async def _gather(self) -> Gathered:
        listed = await self.groups.get()
        with_members = [name for name, group in listed.items() if group.state not in _NO_MEMBERS]
        without = [name for name in listed if name not in set(with_members)]
        names = (with_members + without)[:_CHECKED_GROUPS]
        # A name that no group has, rather than none: none would mean all.
        between = _BETWEEN_SECONDS if with_members else 0.0
        state = await self.state.get()
        seen = await gather(self.admin, between, names or [""], state)
        # What is missing in the state is said with the state that is shown.
        seen.unchecked = [each for each in seen.unchecked if each not in state.remarks]
        for name, lags in {**seen.lags, **seen.later}.items():
            self._trace(name, lags)
        if len(listed) > len(names):
            seen.unchecked.append(
                f"{len(names):,} of {len(listed):,} groups were checked; ottla cluster doctor checks them all"
            )
        return seen

    async def findings(self) -> tuple[list[Finding], list[str], bool]:
        """What is wrong, what couldn't be found out, and whether that is all.

        The state of brokers and partitions is up to date. Settings, groups and transactions take longer: their last
        findings are taken, and renewed in the background.
        """
        state = await self.state.get()
        self.deep.refresh()
        deep = self.deep.last
        if deep is None:
            return (
                findings_of(Gathered(state, now_ms(), unchecked=list(state.remarks))),
                list(state.remarks),
                False,
            )
        return findings_of(replace(deep, state=state)), [*state.remarks, *deep.unchecked], True

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

    async def lags_of(self, names: Collection[str]) -> dict[str, Lags | ClientError]:
        """The lags of some groups, which their histories get as well.

        They are kept for a while that grows with what
        it took to ask for them.
        """
        free = asyncio.Semaphore(AT_ONCE)
        loop = asyncio.get_running_loop()
        started = loop.time()
        old = [name for name in names if name not in self._lags or self._lags[name][0] <= started]

        async def one(name: str) -> Lags | ClientError:
            async with free:
                try:
                    return await self.admin.group_lag(name)
                except ClientError as error:
                    return error

        found = dict(zip(old, await asyncio.gather(*map(one, old)), strict=True))
        now = loop.time()
        until = now + pause_after(now - started, self._refresh, _MOST_SECONDS)
        for name, lags in found.items():
            self._lags[name] = (until, lags)
            if not isinstance(lags, ClientError) and lags:
                self.histories.setdefault(name, History()).add(_look_of(now, lags))
                self._trace(name, lags)
        _bound(self.histories, names)
        _bound(self.traces, names)
        lags_now = {name: self._lags[name][1] for name in names}
        while len(self._lags) > _HISTORIES:
            del self._lags[next(iter(self._lags))]
        return lags_now

    def _trace(self, name: str, lags: Lags) -> None:
        if lags:
            look = _look_of(asyncio.get_running_loop().time(), lags)
            self.traces.setdefault(name, Trace()).add(look)

    def forget(self) -> None:
        """Something was changed."""
        self._lags.clear()
        for cached in (self.state, self.groups, self.transactions, self.deep):
            cached.forget()

    async def close(self) -> None:
        for cached in (self.sizes, self.state, self.groups, self.transactions, self.deep):
            await cached.close()


async def offsets_known(
    admin: Admin, wanted: Mapping[TopicPartition, OffsetSpec | int]
) -> dict[TopicPartition, int]:
    """Offsets of the partitions that answer; the others, which have lost their leader, are left out."""
    from ..admin import PartialError

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
