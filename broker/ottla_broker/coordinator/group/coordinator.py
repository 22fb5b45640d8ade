"""The classic group coordinator: what the handlers of the group APIs call.

Kafka: ``GroupCoordinator.scala``. A group lives on the broker that leads the partition of
``__consumer_offsets`` that its id hashes to; every request about a group another broker has, or that is still
being loaded, is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import CommitItem, Commits, Fetched
from ottla_broker.coordinator.group.group import Group, join_error, sync_error
from ottla_broker.coordinator.group.machine import GroupShard
from ottla_broker.coordinator.group.member import JoinReply, Member, SyncReply
from ottla_broker.coordinator.group.membership import Joiner, Leaver, Membership
from ottla_broker.coordinator.group.offsets import TopicPartition
from ottla_broker.coordinator.group.rebalance import Rebalancer
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.states import GroupState
from ottla_broker.coordinator.group.subscription import PROTOCOL_TYPE
from ottla_broker.coordinator.shard import Shard, ShardHost, ShardPartition
from ottla_broker.coordinator.slices import Sliced
from ottla_broker.events import get_logger
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC

if TYPE_CHECKING:
    from random import Random

log = get_logger()


GROUP_TYPE = "classic"
"""What ListGroups calls these groups (KIP-848)."""


class GroupDescription(NamedTuple):
    """A group as DescribeGroups shows it: metadata and assignments only while it is stable."""

    error: int
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[tuple[Member, bytes, bytes]] = ()
    """Each member with its metadata and its assignment."""


class GroupListing(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCoordinator:
    """All groups that this broker coordinates. Owned by the loop thread.

    A listener of the replica manager (:meth:`on_leader`, :meth:`on_stop`). ``partitions()`` is the number of
    partitions of ``__consumer_offsets``: of the topic if it is there, else of the configuration. Between
    :meth:`start` and :meth:`stop` requests are served; outside they are told COORDINATOR_NOT_AVAILABLE.

    Replies are called exactly once, at once or when what they wait for has happened.
    """

    def __init__(
        self, settings: GroupSettings, clock: Clock, random: Random, partitions: Callable[[], int]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._rebalancer = Rebalancer(settings, clock)
        self._membership = Membership(settings, self._rebalancer, random)
        self._commits = Commits(settings, self._rebalancer)
        self._groups: dict[str, Group] = {}
        self._homes: dict[int, GroupShard] = {}
        self._host = ShardHost(
            OFFSETS_TOPIC, partitions, self._make_home, clock, settings.codec, settings.commit_timeout_ms
        )
        self._active = False
        self._expiry_timer: TimerHandle | None = None
        self._sweeps: set[Sliced] = set()

    # Life

    def start(self) -> None:
        """Serve requests, and look for expired offsets now and then."""
        self._active = True
        self._plan_expiry()

    def stop(self) -> None:
        """Answer everybody who waits with NOT_COORDINATOR, and do nothing more."""
        self._active = False
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        for sweep in self._sweeps:
            sweep.cancel()
        self._sweeps.clear()
        self._host.close()
        self._homes.clear()
        self._rebalancer.deadlines.close()

    def on_leader(self, partition: ShardPartition) -> None:
        """This broker leads a partition: if it is one of ours, load its groups."""
        self._host.on_leader(partition)

    def on_stop(self, topic: str, partition: int) -> None:
        """This broker leads a partition no more: if it is one of ours, give its groups up."""
        self._host.on_stop(topic, partition)

    def on_partitions_deleted(self, topic: str, partitions: Sequence[int]) -> None:
        """Partitions of a topic are deleted: forget the offsets committed for them."""
        groups = list(self._groups.values())
        self._sweep(self._commits.forget_topic(groups, topic, frozenset(partitions)), "deleted topic")

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` whose leader coordinates the group."""
        return self._host.partition_for(group_id)

    def _make_home(self, shard: Shard) -> GroupShard:
        home = self._homes[shard.index] = GroupShard(shard, self._groups, self._rebalancer)
        return home

    # Finding groups

    def _find(
        self, group_id: str, may_be_unnamed: bool = False
    ) -> tuple[int, Group | None, GroupShard | None]:
        """The group and its shard; or the error code for a group that cannot be served here.

        The empty id is no group to join, but simple consumers of old commit to it (``may_be_unnamed``).
        """
        group = self._groups.get(group_id)
        if group is not None and (group_id or may_be_unnamed):
            return codes.NONE, group, group.home
        if not group_id and not may_be_unnamed:
            return codes.INVALID_GROUP_ID, None, None
        if not self._active:
            return codes.COORDINATOR_NOT_AVAILABLE, None, None
        error, shard = self._host.find(group_id)
        if shard is None:
            return error, None, None
        return codes.NONE, None, self._homes[shard.index]

    # Membership

    def join(self, group_id: str, joiner: Joiner, reply: JoinReply) -> None:
        """JoinGroup: answered when the next generation begins, or at once if there is no need to wait."""
        error, group, home = self._find(group_id)
        if home is None:
            reply(join_error(joiner.member_id, error))
        elif not (
            self._settings.min_session_timeout_ms
            <= joiner.session_timeout_ms
            <= self._settings.max_session_timeout_ms
        ):
            reply(join_error(joiner.member_id, codes.INVALID_SESSION_TIMEOUT))
        else:
            self._membership.join(group_id, group, home, joiner, reply)

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: dict[str, bytes],
        reply: SyncReply,
    ) -> None:
        """SyncGroup: answered when the leader's assignment is in the log."""
        error, group, home = self._find(group_id)
        if group is not None:
            self._membership.sync(
                group, member_id, instance_id, generation, protocol_type, protocol_name, assignments, reply
            )
        elif home is not None:
            reply(sync_error(codes.UNKNOWN_MEMBER_ID))
        elif error == codes.COORDINATOR_LOAD_IN_PROGRESS:
            # The generation it belongs to is lost with the old coordinator, so it may as well join at once.
            reply(sync_error(codes.REBALANCE_IN_PROGRESS))
        else:
            reply(sync_error(error))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """Heartbeat; returns the error code."""
        group = self._groups.get(group_id)
        if group is not None and group_id:
            return self._membership.heartbeat(group, member_id, instance_id, generation)
        error, _, home = self._find(group_id)
        if home is not None:
            return codes.UNKNOWN_MEMBER_ID
        # Nobody is timed out while the group is loaded, so a heartbeat need not be worried.
        return codes.NONE if error == codes.COORDINATOR_LOAD_IN_PROGRESS else error

    def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[int, list[int]]:
        """LeaveGroup; returns the error code of the request, and one a member if that is NONE."""
        error, group, home = self._find(group_id)
        if home is None:
            return error, []
        if group is None:
            return codes.NONE, [codes.UNKNOWN_MEMBER_ID] * len(leavers)
        return codes.NONE, [self._membership.leave(group, leaver) for leaver in leavers]

    # Offsets

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        items: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
    ) -> None:
        """OffsetCommit: answered, with an error code an item, when the offsets are committed by the log."""
        error, group, home = self._find(group_id, may_be_unnamed=True)
        if home is None:
            reply([error] * len(items))
        else:
            self._commits.commit(group_id, group, home, member_id, instance_id, generation, items, reply)

    def fetch(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None, require_stable: bool
    ) -> tuple[int, list[tuple[str, list[Fetched]]]]:
        """OffsetFetch for one group; returns the error code of the group, and offsets by topic if that is
        NONE."""
        error, group, home = self._find(group_id, may_be_unnamed=True)
        if home is None:
            return error, []
        return codes.NONE, self._commits.fetch(group, topics, require_stable)

    def delete_offsets(
        self,
        group_id: str,
        keys: Sequence[TopicPartition],
        reply: Callable[[int, dict[TopicPartition, int]], None],
    ) -> None:
        """OffsetDelete (KIP-496): ``reply`` gets the error code of the group, and one a partition if that is
        NONE."""
        error, group, home = self._find(group_id)
        if home is None:
            reply(error, {})
            return
        if group is None:
            reply(codes.GROUP_ID_NOT_FOUND, {})
            return
        answers = dict.fromkeys(keys, codes.NONE)
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != PROTOCOL_TYPE:
                reply(codes.NON_EMPTY_GROUP, {})
                return
            subscribed = group.subscribed
            for key in answers:
                # Where it is not known what members are subscribed to, it may be this.
                if subscribed is None or key[0] in subscribed:
                    answers[key] = codes.GROUP_SUBSCRIBED_TO_TOPIC
        allowed = [key for key, answer in answers.items() if answer == codes.NONE]
        free = [key for key in allowed if group.offsets.get(*key) is not None]

        def removed(error: int) -> None:
            for key in free:
                answers[key] = error
            reply(codes.NONE, answers)

        self._commits.remove(group, free, bool(allowed) and self._commits.is_spent(group, len(free)), removed)

    # Administration

    def describe(self, group_id: str) -> GroupDescription:
        """DescribeGroups for one group; one that does not exist is dead."""
        error, group, home = self._find(group_id, may_be_unnamed=True)
        if home is None:
            return GroupDescription(error)
        if group is None:
            return GroupDescription(codes.NONE, GroupState.DEAD.value)
        stable = group.state is GroupState.STABLE
        protocol = group.protocol_name if stable else None
        return GroupDescription(
            codes.NONE,
            group.state.value,
            group.protocol_type or "",
            protocol or "",
            [
                (member, member.metadata(protocol) if stable else b"", member.assignment if stable else b"")
                for member in group.members.values()
            ],
        )

    def list(self, states: Sequence[str], types: Sequence[str]) -> tuple[int, list[GroupListing]]:
        """ListGroups: the groups here, of these states and types if any are named (in any case of
        letters)."""
        if not self._active:
            return codes.COORDINATOR_NOT_AVAILABLE, []
        error = codes.COORDINATOR_LOAD_IN_PROGRESS if self._host.loading else codes.NONE
        if types and GROUP_TYPE not in {name.lower() for name in types}:
            return error, []
        wanted = {name.lower() for name in states}
        return error, [
            GroupListing(group.group_id, group.protocol_type or "", group.state.value, GROUP_TYPE)
            for group in self._groups.values()
            if not wanted or group.state.value.lower() in wanted
        ]

    def delete(self, group_ids: Sequence[str], reply: Callable[[dict[str, int]], None]) -> None:
        """DeleteGroups: empty groups go, with their offsets; ``reply`` gets an error code a group."""
        answers: dict[str, int] = {}
        doomed: list[Group] = []
        for group_id in dict.fromkeys(group_ids):
            error, group, home = self._find(group_id, may_be_unnamed=True)
            if home is None:
                answers[group_id] = error
            elif group is None:
                answers[group_id] = codes.GROUP_ID_NOT_FOUND
            elif group.state is not GroupState.EMPTY:
                answers[group_id] = codes.NON_EMPTY_GROUP
            else:
                answers[group_id] = codes.NONE
                doomed.append(group)
        waiting = len(doomed)
        if not waiting:
            reply(answers)

        def removed(group_id: str, error: int) -> None:
            nonlocal waiting
            answers[group_id] = error
            waiting -= 1
            if not waiting:
                reply(answers)

        for group in doomed:
            log.info("group deleted", group=group.group_id, offsets=len(group.offsets))
            keys = {
                **dict.fromkeys(group.offsets.committed_keys()),
                **dict.fromkeys(group.offsets.pending_keys()),
            }
            self._commits.remove(group, list(keys), True, partial(removed, group.group_id))

    # Background work

    def _plan_expiry(self) -> None:
        self._expiry_timer = self._clock.call_later(
            self._settings.retention_check_interval_ms / 1000, self._expire
        )

    def _expire(self) -> None:
        self._sweep(self._commits.expire(list(self._groups.values())), "expiry")
        self._plan_expiry()

    def _sweep(self, steps: Iterator[None], what: str) -> None:
        def finished(error: Exception | None) -> None:
            self._sweeps.discard(sweep)
            if error is not None:
                log.error("sweep over committed offsets failed", what=what, reason=repr(error))

        sweep = Sliced(self._clock, steps, finished)
        self._sweeps.add(sweep)
