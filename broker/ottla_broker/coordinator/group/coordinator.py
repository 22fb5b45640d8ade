"""The group coordinator, which the handlers of the group APIs call.

Kafka: ``GroupCoordinator.scala``, and ``GroupMetadataManager`` for groups of the consumer protocol. A group lives on
the broker that leads the partition of ``__consumer_offsets`` that its id hashes to. Requests about other groups, or
about one that is being loaded, get an error that says so. A group is of one kind at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.admission import Admission
from ottla_broker.coordinator.group.commits import CommitItem, Commits, Fetched
from ottla_broker.coordinator.group.group import (
    CLASSIC_TYPE,
    PROTOCOL_TYPE,
    Group,
    join_error,
    sync_error,
)
from ottla_broker.coordinator.group.group_shard import AnyGroup, GroupLife, GroupShard
from ottla_broker.coordinator.group.member import DescribedMember, JoinReply, Sender, SyncReply
from ottla_broker.coordinator.group.member_ids import random_uuid
from ottla_broker.coordinator.group.membership import JoinRequest, LeaveRequest, Membership
from ottla_broker.coordinator.group.modern.consumer_group import CONSUMER_TYPE, ConsumerGroup
from ottla_broker.coordinator.group.modern.consumer_groups import ConsumerGroups
from ottla_broker.coordinator.group.modern.describe import ConsumerGroupDescription, describe_group
from ottla_broker.coordinator.group.modern.heartbeats import Heartbeat, HeartbeatAnswer, HeartbeatReply
from ottla_broker.coordinator.group.modern.settings import TimesOf
from ottla_broker.coordinator.group.modern.states import JOIN_EPOCH
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_broker.coordinator.group.offsets import TopicPartition
from ottla_broker.coordinator.group.rebalance import Rebalancer
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.share.group import SHARE_TYPE, ShareGroup
from ottla_broker.coordinator.group.share.groups import (
    ShareGroupLoader,
    ShareGroups,
    ShareHeartbeat,
    check,
)
from ottla_broker.coordinator.group.states import GroupState
from ottla_broker.coordinator.shard import Shard, ShardHost
from ottla_broker.coordinator.time_sliced_task import Sweeps
from ottla_broker.events import get_logger
from ottla_broker.log.heard_connections import Arrival, ConnectionAge
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

_log = get_logger()


class GroupDescription(NamedTuple):
    """A group as DescribeGroups shows it: metadata and assignments only while it is stable."""

    error: int
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[tuple[DescribedMember, bytes, bytes]] = ()
    """Each member with its metadata and its assignment."""


class GroupListing(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCoordinator:
    """All groups that this broker coordinates. Owned by the loop thread.

    A listener of the replica manager (``on_leader``, ``on_stop``). ``partitions()`` is the number of partitions
    of ``__consumer_offsets``: the topic's, or the configured one if there is no topic. ``topics`` are those that groups
    of the consumer protocol can read, ``times_of(group_id)`` the timeouts of such a group. ``shares`` has the share
    groups; None: they aren't served. ``admission`` says who may enter a group.

    Before :meth:`start` and after :meth:`stop` requests get COORDINATOR_NOT_AVAILABLE. Each reply is called exactly
    once, before the method returns or later.
    """

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        random: Random,
        partitions: Callable[[], int],
        topics: TopicsView,
        times_of: TimesOf,
        shares: ShareGroups | None = None,
    ) -> None:
        self.shares = shares
        self._settings = settings
        self._clock = clock
        self._random = random
        self._groups: dict[str, AnyGroup] = {}
        self._shards: dict[int, GroupShard] = {}
        self.admission = Admission(settings, clock, self._groups, {} if shares is None else shares.groups)
        limit = self.admission.metadata_limit
        if shares is not None:
            shares.metadata_limit = limit
        self._rebalancer = Rebalancer(settings, clock, self._groups)
        self._membership = Membership(settings, self._rebalancer, random)
        self._modern = ConsumerGroups(
            settings.consumer,
            settings.max_size,
            times_of,
            topics,
            clock,
            random,
            self._rebalancer,
            self._groups,
            self._adopt,
            limit,
        )
        self._life = GroupLife(self._resume, self._retire)
        self._commits = Commits(settings, self._rebalancer, self._forget, limit)
        self._host = ShardHost(
            OFFSETS_TOPIC, partitions, self._make_shard, clock, settings.codec, settings.commit_timeout_ms
        )
        self.on_leader = self._host.on_leader
        self.on_stop = self._host.on_stop
        self.partition_for = self._host.partition_for
        self._active = False
        self._expiry_timer: TimerHandle | None = None
        self._sweeps = Sweeps(clock, "sweep over committed offsets failed")

    # Life

    def start(self) -> None:
        """Serve requests, and remove expired offsets periodically."""
        self._active = True
        self._plan_expiry()

    def stop(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR, and stop all work."""
        self._active = False
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        self._sweeps.close()
        self._host.close()
        self._shards.clear()
        self._rebalancer.deadlines.close()
        self._modern.close()
        if self.shares is not None:
            self.shares.close()

    def on_partitions_deleted(self, topic: str, partitions: Sequence[int]) -> None:
        """Partitions of a topic are deleted: remove the offsets committed for them."""
        groups = list(self._groups.values())
        self._sweeps.start(self._commits.forget_topic(groups, topic, frozenset(partitions)), "deleted topic")

    def complete_transaction(
        self, partition_indexes: Iterable[int], producer_id: int, committed: bool
    ) -> None:
        """A producer's marker is committed in these partitions of ``__consumer_offsets``.

        The offsets that its transaction wrote there count from now on, or are dropped.
        """
        for index in partition_indexes:
            shard = self._shards.get(index)
            if shard is not None:
                shard.end_transaction(producer_id, committed)

    def _make_shard(self, shard: Shard) -> GroupShard:
        shares = None if self.shares is None else ShareGroupLoader(shard, self.shares)
        made = self._shards[shard.index] = GroupShard(
            shard, self._groups, self._clock.now_ms, self._life, self.admission.metadata_limit, shares
        )
        return made

    def _adopt(self, group: AnyGroup) -> None:
        self._shards[group.shard.index].adopt(group)

    def _resume(self, group: AnyGroup) -> None:
        if isinstance(group, Group):
            self._rebalancer.resume(group)
        else:
            self._modern.resume(group)

    def _retire(self, group: AnyGroup) -> None:
        if isinstance(group, Group):
            self._rebalancer.retire(group)
        else:
            self._modern.retire(group)

    def _forget(self, group: AnyGroup) -> None:
        self._retire(group)
        self._shards[group.shard.index].forget(group)

    @property
    def groups(self) -> Sequence[AnyGroup]:
        """The groups as they are now: for metrics, which read them and change nothing."""
        return list(self._groups.values())

    @property
    def loading(self) -> bool:
        return self._host.loading

    # Finding groups

    def _find(
        self, group_id: str, may_be_unnamed: bool = False
    ) -> tuple[int, AnyGroup | None, GroupShard | None]:
        """The group and its shard; or the error code for a group that cannot be served here.

        No one can join the group with the empty id, but old simple consumers commit to it (``may_be_unnamed``).
        A share group is no group to all that don't ask for one.
        """
        if self.share_group(group_id) is not None:
            return codes.GROUP_ID_NOT_FOUND, None, None
        group = self._groups.get(group_id)
        if group is not None and (group_id or may_be_unnamed):
            return codes.NONE, group, self._shards[group.shard.index]
        if not group_id and not may_be_unnamed:
            return codes.INVALID_GROUP_ID, None, None
        if not self._active:
            return codes.COORDINATOR_NOT_AVAILABLE, None, None
        error, shard = self._host.find(group_id)
        if shard is None:
            return error, None, None
        return codes.NONE, None, self._shards[shard.index]

    # Membership

    def join(self, group_id: str, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup: answered when the next generation begins, or at once if there is no need to wait."""

        def proceed(holder: str | None) -> None:
            if holder is None or self._find(group_id)[2] is None:
                self._join(group_id, request, reply)
            else:
                self.admission.held(group_id, holder, request, CLASSIC_TYPE)
                # The response has no text. Clients give up, and say that protocols don't match.
                reply(join_error(request.member_id, codes.INCONSISTENT_GROUP_PROTOCOL))

        self.admission.check_old_consumers(group_id, proceed)

    def _join(self, group_id: str, request: JoinRequest, reply: JoinReply) -> None:
        error, group, shard = self._find(group_id)
        if self.share_group(group_id) is not None:
            self.admission.other_type(group_id, request, CLASSIC_TYPE)
            reply(join_error(request.member_id, codes.INCONSISTENT_GROUP_PROTOCOL))
        elif shard is None:
            reply(join_error(request.member_id, error))
        elif not (
            self._settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= self._settings.max_session_timeout_ms
        ):
            reply(join_error(request.member_id, codes.INVALID_SESSION_TIMEOUT))
        elif self.admission.refuses_member(group, request):
            reply(join_error(request.member_id, codes.GROUP_MAX_SIZE_REACHED))
        elif isinstance(group, ConsumerGroup):
            self._join_consumer_group(group, shard, request, reply)
        else:
            self._membership.join(group_id, group, shard, request, reply)

    def _join_consumer_group(
        self, group: ConsumerGroup, shard: GroupShard, request: JoinRequest, reply: JoinReply
    ) -> None:
        """A classic member joins a group of the consumer protocol; an empty one becomes classic."""
        if not group.is_empty:
            new_id = f"{request.client_id}-{random_uuid(self._random)}"
            self._modern.classic.join(group, request, new_id, reply)
            return
        try:
            classic = self._modern.migration.begin_classic(group)
        except KafkaError as error:
            reply(join_error(request.member_id, int(error.code)))
        else:
            self._membership.join(group.group_id, classic, shard, request, reply)

    def sync(
        self,
        group_id: str,
        sender: Sender,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: dict[str, bytes],
        reply: SyncReply,
    ) -> None:
        """SyncGroup: answered when the leader's assignment is in the log."""
        error, group, shard = self._find(group_id)
        if isinstance(group, ConsumerGroup):
            self._modern.classic.sync(group, sender, protocol_type, protocol_name, reply)
        elif group is not None:
            self._membership.sync(group, sender, protocol_type, protocol_name, assignments, reply)
        elif shard is not None:
            reply(sync_error(codes.UNKNOWN_MEMBER_ID))
        elif error == codes.COORDINATOR_LOAD_IN_PROGRESS:
            # Its generation is lost with the old coordinator, so the member can join right away.
            reply(sync_error(codes.REBALANCE_IN_PROGRESS))
        else:
            reply(sync_error(error))

    def heartbeat(self, group_id: str, sender: Sender) -> int:
        """Heartbeat; returns the error code."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._modern.classic.heartbeat(group, sender)
        if group is not None and group_id:
            return self._membership.heartbeat(group, sender)
        error, _, shard = self._find(group_id)
        if shard is not None:
            return codes.UNKNOWN_MEMBER_ID
        # No member times out while the group is loaded.
        return codes.NONE if error == codes.COORDINATOR_LOAD_IN_PROGRESS else error

    def leave(self, group_id: str, members: Sequence[LeaveRequest]) -> tuple[int, list[int]]:
        """LeaveGroup; returns the error code of the request, and one per member if that is NONE."""
        error, group, shard = self._find(group_id)
        if shard is None:
            return error, []
        if group is None:
            return codes.NONE, [codes.UNKNOWN_MEMBER_ID] * len(members)
        if isinstance(group, ConsumerGroup):
            return codes.NONE, self._modern.classic.leave(group, members)
        return codes.NONE, [self._membership.leave(group, member) for member in members]

    def consumer_heartbeat(self, group_id: str, request: Heartbeat, reply: HeartbeatReply) -> None:
        """ConsumerGroupHeartbeat: answered when what it changes is in the log."""

        def refuse(error: KafkaError) -> None:
            reply(HeartbeatAnswer(request.member_id, request.epoch, error=error))

        def proceed(holder: str | None = None) -> None:
            error, group, shard = self._find(group_id)
            if self.share_group(group_id) is not None and request.epoch == JOIN_EPOCH:
                refuse(self.admission.other_type(group_id, request, CONSUMER_TYPE))
            elif shard is None:
                refuse(KafkaError(ErrorCode(error)))
            elif holder is not None:
                refuse(self.admission.held(group_id, holder, request, CONSUMER_TYPE))
            else:
                try:
                    self.admission.check_group(group)
                except KafkaError as refused:
                    refuse(refused)
                else:
                    self._modern.heartbeat(group_id, group, shard.shard, request, reply)

        wrong = self._modern.check(group_id, request)
        if wrong is not None:
            refuse(wrong)
        elif request.epoch == JOIN_EPOCH:
            self.admission.check_old_consumers(group_id, proceed)
        else:
            proceed()

    # Share groups

    def share_group(self, group_id: str) -> ShareGroup | None:
        return None if self.shares is None else self.shares.groups.get(group_id)

    def share_heartbeat(self, group_id: str, request: ShareHeartbeat, reply: HeartbeatReply) -> None:
        """ShareGroupHeartbeat: answered when what it changes is in the log."""
        found = self.share_group(group_id)
        if request.epoch == JOIN_EPOCH and (found is None or not found.members):
            self.admission.check_old_consumers(
                group_id, partial(self._share_heartbeat, group_id, request, reply)
            )
        else:
            self._share_heartbeat(group_id, request, reply, None)

    def _share_heartbeat(
        self, group_id: str, request: ShareHeartbeat, reply: HeartbeatReply, holder: str | None
    ) -> None:
        assert self.shares is not None
        try:
            check(group_id, request)
            found = self.share_group(group_id)
            if found is None and group_id in self._groups and request.epoch == JOIN_EPOCH:
                raise self.admission.other_type(group_id, request, SHARE_TYPE)
            shard = self._shard_for_share_group(group_id) if found is None else found.shard
            if holder is not None:
                raise self.admission.held(group_id, holder, request, SHARE_TYPE)
        except KafkaError as refused:
            reply(HeartbeatAnswer(request.member_id, request.epoch, error=refused))
        else:
            self.shares.heartbeat(group_id, shard, request, reply)

    def _shard_for_share_group(self, group_id: str) -> Shard:
        """The shard of a share group that isn't there yet. Raises KafkaError."""
        error, group, group_shard = self._find(group_id)
        if group_shard is None:
            raise KafkaError(ErrorCode(error))
        if group is not None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        self.admission.check_group(None)
        return group_shard.shard

    def share_group_or_new(self, group_id: str) -> ShareGroup:
        """AlterShareGroupOffsets for one group, which it makes if there is none. Raises KafkaError."""
        assert self.shares is not None
        return self.share_group(group_id) or self.shares.make(group_id, self._shard_for_share_group(group_id))

    def describe_share_group(self, group_id: str) -> ShareGroup:
        """ShareGroupDescribe for one group. Raises KafkaError."""
        found = self.share_group(group_id)
        if found is not None:
            return found
        error, group, shard = self._find(group_id)
        if shard is None:
            raise KafkaError(ErrorCode(error))
        why = "not found" if group is None else "is not a share group"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}.")

    # Offsets

    def commit(
        self,
        group_id: str,
        sender: Sender,
        items: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
        version: int = 8,
    ) -> None:
        """OffsetCommit: answered, with one error code per item, when the log has committed the offsets.

        ``version`` is the request's: from 9 on clients know the errors of groups of the consumer protocol.
        """
        error, group, shard = self._find(group_id, may_be_unnamed=True)
        if shard is None:
            reply([error] * len(items))
        elif self.admission.refuses_group(group):
            reply([codes.GROUP_MAX_SIZE_REACHED] * len(items))
        else:
            self._commits.commit(group_id, group, shard, sender, items, reply, version)

    def hear(self, group_id: str, producer: tuple[int, int], connection: ConnectionAge) -> Arrival:
        """Tell whether a commit of ``producer`` (id and epoch) is late, and note its connection."""
        _, _, shard = self._find(group_id)
        if shard is None:
            return Arrival.TIMELY  # The commit is refused for that.
        # A producer has one commit of a group under way.
        return shard.shard.partition.hear(*producer, connection, group_id)

    def begin_verification(self, group_id: str, producer: tuple[int, int]) -> VerificationGuard | None:
        """The guard under which the transaction of ``producer`` must be verified before it commits offsets.

        None: it has offsets in the group's partition already, or the group can't be served.
        """
        _, _, shard = self._find(group_id)
        if shard is None:
            return None
        try:
            return shard.shard.partition.begin_verification(producer[0], 0, producer[1], self._clock.now_ms())
        except KafkaError:
            # The commit itself fails with the same error, and answers it.
            return None

    def commit_transactional(
        self,
        group_id: str,
        producer: tuple[int, int],
        sender: Sender,
        items: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
        guard: VerificationGuard | None = None,
    ) -> None:
        """TxnOffsetCommit for the transaction of ``producer`` (its id and epoch): answered when the log has it.

        ``guard``: from :meth:`begin_verification`, once the transaction is verified.
        """
        error, group, shard = self._find(group_id)
        if shard is None:
            reply([error] * len(items))
        elif self.admission.refuses_group(group):
            reply([codes.GROUP_MAX_SIZE_REACHED] * len(items))
        else:
            self._commits.commit_transactional(group_id, group, shard, producer, sender, items, reply, guard)

    def fetch(
        self,
        group_id: str,
        topics: Sequence[tuple[str, Sequence[int]]] | None,
        require_stable: bool,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> tuple[int, list[tuple[str, list[Fetched]]]]:
        """OffsetFetch for one group; returns the group's error code, and offsets by topic if that is NONE.

        A member of the consumer protocol names itself and its epoch. A share group has no offsets.
        """
        if self.share_group(group_id) is not None:
            return codes.NONE, self._commits.fetch(None, topics, require_stable)
        error, group, shard = self._find(group_id, may_be_unnamed=True)
        if shard is None:
            return error, []
        if group is not None:
            error = group.may_fetch(member_id, epoch)
            if error != codes.NONE:
                return error, []
        return codes.NONE, self._commits.fetch(group, topics, require_stable)

    def delete_offsets(
        self,
        group_id: str,
        keys: Sequence[TopicPartition],
        reply: Callable[[int, dict[TopicPartition, int]], None],
    ) -> None:
        """OffsetDelete (KIP-496): ``reply`` gets the group's error code, and one per partition if that is NONE."""

        def proceed(holder: str | None) -> None:
            if holder is None:
                self._delete_offsets(group_id, keys, reply)
            else:
                reply(codes.NON_EMPTY_GROUP, {})

        self.admission.check_old_consumers(group_id, proceed)

    def _delete_offsets(
        self,
        group_id: str,
        keys: Sequence[TopicPartition],
        reply: Callable[[int, dict[TopicPartition, int]], None],
    ) -> None:
        error, group, shard = self._find(group_id)
        if shard is None:
            reply(error, {})
            return
        if group is None:
            reply(codes.GROUP_ID_NOT_FOUND, {})
            return
        answers = dict.fromkeys(keys, codes.NONE)
        if not group.is_empty:
            if isinstance(group, Group) and group.protocol_type != PROTOCOL_TYPE:
                reply(codes.NON_EMPTY_GROUP, {})
                return
            for key in answers:
                # If the subscriptions are unknown, they may contain the topic.
                if group.subscribes_to(key[0]):
                    answers[key] = codes.GROUP_SUBSCRIBED_TO_TOPIC
        allowed = [key for key, answer in answers.items() if answer == codes.NONE]
        free = [key for key in allowed if group.offsets.get(*key) is not None]

        def removed(error: int) -> None:
            for key in free:
                answers[key] = error
            reply(codes.NONE, answers)

        self._commits.remove(group, free, bool(allowed) and group.is_spent(len(free)), removed)

    # Administration

    def describe(self, group_id: str) -> GroupDescription:
        """DescribeGroups for one group; a missing one is dead."""
        error, group, shard = self._find(group_id, may_be_unnamed=True)
        if shard is None and self.share_group(group_id) is None:
            return GroupDescription(error)
        if group is None or isinstance(group, ConsumerGroup):
            # Clients ask for a group of the consumer protocol by ConsumerGroupDescribe, for a share group by its own.
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

    def list(self, states: Sequence[str], types: Sequence[str]) -> tuple[int, Iterator[GroupListing | None]]:
        """ListGroups: the groups here, of the named states and types if any; case doesn't matter.

        For each that isn't selected there is a None, so that a caller can pause after a number of them.
        """
        if not self._active:
            return codes.COORDINATOR_NOT_AVAILABLE, iter(())
        error = codes.COORDINATOR_LOAD_IN_PROGRESS if self._host.loading else codes.NONE
        wanted = {name.lower() for name in states}
        kinds = {name.lower() for name in types}
        shares = () if self.shares is None else self.shares.groups.values()

        def select(group: AnyGroup | ShareGroup) -> GroupListing | None:
            found = _listing(group)
            if (wanted and found.state.lower() not in wanted) or (kinds and found.group_type not in kinds):
                return None
            return found

        return error, map(select, [*self._groups.values(), *shares])

    def may_be_in_zookeeper(self, group_id: str) -> bool:
        """Whether this broker coordinates a group that has no members here."""
        if self.share_group(group_id) is not None:
            return False
        _, group, shard = self._find(group_id)
        return shard is not None and (group is None or group.is_empty)

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescription:
        """ConsumerGroupDescribe for one group."""
        error, group, shard = self._find(group_id)
        if shard is None:
            return ConsumerGroupDescription(KafkaError(ErrorCode(error)))
        if isinstance(group, ConsumerGroup):
            return describe_group(group, self._modern.default_assignor, self._modern.topics)
        why = "not found" if group is None else "is not a consumer group: the classic protocol holds it"
        return ConsumerGroupDescription(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}."))

    def delete(self, group_ids: Sequence[str], reply: Callable[[dict[str, int]], None]) -> None:
        """DeleteGroups: remove empty groups with their offsets; ``reply`` gets one error code per group."""
        answers: dict[str, int] = {}
        doomed: list[AnyGroup] = []
        doomed_shares: list[ShareGroup] = []
        for group_id in dict.fromkeys(group_ids):
            share = self.share_group(group_id)
            if share is not None:
                answers[group_id] = codes.NONE if share.is_empty else codes.NON_EMPTY_GROUP
                if share.is_empty:
                    doomed_shares.append(share)
                continue
            error, group, shard = self._find(group_id, may_be_unnamed=True)
            if shard is None:
                answers[group_id] = error
            elif group is None:
                answers[group_id] = codes.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                answers[group_id] = codes.NON_EMPTY_GROUP
            else:
                answers[group_id] = codes.NONE
                doomed.append(group)
        waiting = len(doomed) + len(doomed_shares)
        if not waiting:
            reply(answers)

        def removed(group_id: str, error: int) -> None:
            nonlocal waiting
            answers[group_id] = error
            waiting -= 1
            if not waiting:
                reply(answers)

        for share in doomed_shares:
            assert self.shares is not None
            _log.info("group deleted", group=share.group_id, protocol=SHARE_TYPE)
            self.shares.delete(share, partial(removed, share.group_id))
        for group in doomed:
            # Consumers of another generation may have their offsets here.
            self.admission.check_old_consumers(
                group.group_id, partial(self._delete, group, partial(removed, group.group_id))
            )

    def _delete(self, group: AnyGroup, removed: Callable[[int], None], holder: str | None) -> None:
        """Remove a group, unless it has got a member, or has gone, while ZooKeeper was asked."""
        if self._groups.get(group.group_id) is not group:
            removed(codes.GROUP_ID_NOT_FOUND)
        elif holder is not None or not group.is_empty:
            _log.warning("a group with consumers was not deleted", group=group.group_id, held_by=holder)
            removed(codes.NON_EMPTY_GROUP)
        else:
            _log.info("group deleted", group=group.group_id, offsets=len(group.offsets))
            keys = {
                **dict.fromkeys(group.offsets.committed_keys()),
                **dict.fromkeys(group.offsets.pending_keys()),
            }
            self._commits.remove(group, list(keys), True, removed)

    # Background work

    def _plan_expiry(self) -> None:
        self._expiry_timer = self._clock.call_later(
            self._settings.retention_check_interval_ms / 1000, self._expire
        )

    def _expire(self) -> None:
        self._sweeps.start(self._commits.expire(list(self._groups.values())), "expiry")
        self._plan_expiry()


def _listing(group: AnyGroup | ShareGroup) -> GroupListing:
    if isinstance(group, ShareGroup):
        return GroupListing(group.group_id, SHARE_TYPE, group.state, SHARE_TYPE)
    if isinstance(group, ConsumerGroup):
        return GroupListing(group.group_id, PROTOCOL_TYPE, group.state.value, CONSUMER_TYPE)
    return GroupListing(group.group_id, group.protocol_type or "", group.state.value, CLASSIC_TYPE)
