"""Asks the broker that coordinates a group whether the group has members: for the coordinator of 2012 (decision 23)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla_broker.coordinator.group.group import CLASSIC_TYPE
from ottla_broker.coordinator.group.modern.consumer_group import CONSUMER_TYPE
from ottla_broker.coordinator.group.share.group import SHARE_TYPE
from ottla_broker.coordinator.old_consumers import COORDINATED_TYPE, ZOOKEEPER_TYPE, members_of
from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerConnection, PeerError, Peers, Purpose
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import error_code
from ottla_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.share_group_describe import ShareGroupDescribeRequest

_log = get_logger()

_ModernDescribe = ConsumerGroupDescribeRequest | ShareGroupDescribeRequest

_SECONDS: Final = 5.0
"""How long the coordinator may take for one answer."""


class GroupHolders:
    """Owned by the loop thread."""

    def __init__(self, broker_id: int, peers: Peers, coordinator_of: Callable[[str], int | None]) -> None:
        """``coordinator_of``: the broker that coordinates a group, None or -1 without one."""
        self._broker_id = broker_id
        self._peers = peers
        self._coordinator_of = coordinator_of

    async def __call__(self, group_id: str) -> str | None:
        """Return what holds the group at another broker. None: nothing does, or that broker doesn't say."""
        coordinator = self._coordinator_of(group_id)
        if coordinator is None or coordinator < 0 or coordinator == self._broker_id:
            return None
        try:
            connection = await self._peers.connection(coordinator, Purpose.OTHER, _SECONDS)
            return (
                await _classic(connection, group_id)
                or await _modern(
                    connection,
                    ApiKey.CONSUMER_GROUP_DESCRIBE,
                    ConsumerGroupDescribeRequest(group_ids=[group_id]),
                    CONSUMER_TYPE,
                )
                or await _modern(
                    connection,
                    ApiKey.SHARE_GROUP_DESCRIBE,
                    ShareGroupDescribeRequest(group_ids=[group_id]),
                    SHARE_TYPE,
                )
            )
        except PeerError as error:
            _log.warning(
                "a group is taken to have no members: its coordinator doesn't say",
                group=group_id,
                coordinator=coordinator,
                reason=str(error),
            )
            return None


async def _classic(connection: PeerConnection, group_id: str) -> str | None:
    response = await connection.submit(DescribeGroupsRequest(groups=[group_id]), timeout=_SECONDS)
    for group in response.groups:
        if group.error_code:
            raise PeerError(f"DescribeGroups: {error_code(group.error_code).name}")
        if group.members and group.protocol_type not in (COORDINATED_TYPE, ZOOKEEPER_TYPE):
            return members_of(len(group.members), CLASSIC_TYPE)
    return None


async def _modern(
    connection: PeerConnection, api: ApiKey, request: _ModernDescribe, protocol: str
) -> str | None:
    """As :func:`_classic`, for a protocol of which a broker may know nothing: Kafka with ZooKeeper has neither."""
    try:
        connection.version_of(api)
    except PeerError:
        return None
    response = await connection.submit(request, timeout=_SECONDS)
    # An error says that the group is none of this protocol.
    for group in response.groups:
        if group.members:
            return members_of(len(group.members), protocol)
    return None
