"""Parts that ShareFetch and ShareAcknowledge share: sessions, acknowledgements, and partitions' leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from ottla_broker.api_parts.share_services import ShareServices
from ottla_broker.coordinator.share.in_flight import Acknowledgement, check_acknowledgements
from ottla_broker.coordinator.share.sessions import FINAL, ShareSession, ShareSessions
from ottla_broker.coordinator.share.share_partition import SharePartition
from ottla_broker.coordinator.share.share_partitions import SharePartitions
from ottla_broker.coordinator.share.state_batches import ShareKey, TopicIdPartition
from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.replica.partition import Partition
from ottla_broker.requests.context import RequestContext
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.share_fetch import LeaderIdAndEpoch, NodeEndpoint

_LONGEST_MEMBER_ID: Final = 36
"""Characters: those of a UUID as Java's class writes it (Kafka 4.2: ``KafkaApis.isMemberIdValid``)."""

AckResults = dict[TopicIdPartition, KafkaError | None]
"""What became of each partition's acknowledgements."""


class _Batch(Protocol):
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> Sequence[int]: ...


def acknowledgements(batches: Iterable[_Batch]) -> list[Acknowledgement]:
    return [Acknowledgement(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches]


def services(ctx: RequestContext) -> ShareServices:
    found = ctx.services.shares
    assert found is not None
    return found


def check_member(ctx: RequestContext, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """The group and the member. Raises KafkaError: the request names none, or may not read for the group."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id must be given.")
    if not ctx.authorize(AclResource.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return group_id, check_member_id(member_id)


def check_member_id(member_id: str | None) -> str:
    """The id, as all requests of members name it. Raises KafkaError: INVALID_REQUEST."""
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return member_id


def find_partition(ctx: RequestContext, place: TopicIdPartition) -> Partition:
    """The partition, if this broker leads it and the client may read it. Raises KafkaError."""
    topic_id, index = place
    name = ctx.services.replicas.topic_name(topic_id)
    if name is None and (topic := ctx.services.metadata.topic_by_id(topic_id)) is not None:
        name = topic.name
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = ctx.partition(name, index)
    partition.check_leader()
    return partition


def check_exists(ctx: RequestContext, place: TopicIdPartition) -> None:
    """Raises KafkaError: there is no such partition, or the client may not read it. Any broker may lead it."""
    try:
        find_partition(ctx, place)
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise


def share_of(
    ctx: RequestContext, partitions: SharePartitions, session: ShareSession, place: TopicIdPartition
) -> SharePartition:
    """The share partition, used by the session from now on. Raises KafkaError."""
    share = partitions.get(ShareKey(session.group_id, *place), find_partition(ctx, place))
    session.use(share)
    return share


def acknowledge(
    ctx: RequestContext,
    partitions: SharePartitions,
    session: ShareSession,
    wanted: Mapping[TopicIdPartition, Sequence[Acknowledgement]],
    renews: bool,
    done: Callable[[AckResults], None],
) -> None:
    """Apply acknowledgements; ``done`` is called once, when all are persisted or refused.

    A partition with none must only exist (``KafkaApis.handleAcknowledgements``).
    """
    results: AckResults = {}
    waiting = len(wanted)
    if not waiting:
        done(results)
        return

    def settle(place: TopicIdPartition, error: KafkaError | None) -> None:
        nonlocal waiting
        results[place] = error
        waiting -= 1
        if not waiting:
            done(results)

    for place, batches in wanted.items():
        try:
            check_acknowledgements(batches, renews=renews)
            if not batches:
                check_exists(ctx, place)
                settle(place, None)
                continue
            find_partition(ctx, place)
            share = partitions.find(ShareKey(session.group_id, *place))
            if share is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The group's members have acquired nothing here."
                )
        except KafkaError as error:
            settle(place, error)
        else:

            def replied(error: KafkaError | None, place: TopicIdPartition = place) -> None:
                settle(place, error)

            share.acknowledge(session.member_id, batches, replied)


def finish(sessions: ShareSessions, session: ShareSession, epoch: int) -> None:
    """End the session if the request's epoch says so."""
    if epoch == FINAL:
        sessions.end(session.group_id, session.member_id)


def own_session(ctx: RequestContext, sessions: ShareSessions, session: ShareSession) -> None:
    """Have the session end with its connection."""
    connection, key = ctx.connection, (session.group_id, session.member_id)
    connection.on_close[key] = partial(sessions.disconnected, session)
    session.disown = lambda: connection.on_close.pop(key, None)


def leader_of(ctx: RequestContext, place: TopicIdPartition) -> LeaderIdAndEpoch | None:
    """The partition's leader as this broker knows it, for a client that went to the wrong one."""
    topic = ctx.services.metadata.topic_by_id(place[0])
    info = None if topic is None else topic.partitions.get(place[1])
    if info is None or info.leader == NO_LEADER:
        return None
    return LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)


def endpoints(ctx: RequestContext, leaders: Iterable[int]) -> list[NodeEndpoint]:
    """The addresses of brokers on the client's listener."""
    made = []
    for broker_id in dict.fromkeys(leaders):
        broker = ctx.services.metadata.brokers.get(broker_id)
        if broker is not None:
            host, port = broker.listeners.get(ctx.connection.listener, (broker.host, broker.port))
            made.append(NodeEndpoint(node_id=broker_id, host=host, port=port, rack=broker.rack))
    return made
