"""Admin's calls for groups: list, describe and delete them, and remove members."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, ProtocolError
from ottla_protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla_protocol.messages.consumer_group_describe import DescribedGroup as AssignedGroup
from ottla_protocol.messages.consumer_group_describe import Member as AssignedMember
from ottla_protocol.messages.consumer_protocol import decode_assignment, decode_subscription
from ottla_protocol.messages.delete_groups import DeleteGroupsRequest
from ottla_protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
)
from ottla_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.share_group_describe import DescribedGroup as SharedGroup
from ottla_protocol.messages.share_group_describe import Member as SharedMember
from ottla_protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla_protocol.printable import shown_name

from ..deadline import Deadline
from ..errors import ClientError, UnsupportedApiError
from ..requests.driver import Node, Outcomes, ToCoordinators
from ..requests.outcomes import error_of, outcome_of
from ..types import COORDINATED, IN_ZOOKEEPER, TopicPartition
from .arguments import listed
from .base import AdminBase
from .results import is_unknown_group
from .values import GroupDescription, GroupListing, MemberDescription

CONSUMER: Final = "consumer"
"""The protocol type of consumer groups."""
SHARE: Final = "share"
"""The protocol type, and the type, of share groups."""

# LeaveGroup accepts several members, and instance ids, from this version on (KIP-345).
_REMOVE_SINCE: Final = 3
# Answers to requests for newer kinds of groups that say nothing of the group: Kafka 3.9 has the request, but not its
# kind of group, and only a classic group can have the empty id.
_NOT_DESCRIBED: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID)
# ListGroups filters by state from version 4 on (KIP-518).
_STATES_SINCE: Final = 4


class MemberToRemove(NamedTuple):
    """A member by its id, or a static member by its instance id."""

    member_id: str = ""
    instance_id: str | None = None

    def __str__(self) -> str:
        return self.member_id if self.instance_id is None else f"instance {self.instance_id}"


class GroupCalls(AdminBase):
    async def list_groups(
        self, *, states: Collection[str] = (), timeout: float | None = None
    ) -> dict[str, GroupListing]:
        """All groups by name: consumer groups, and others such as those of Connect.

        ``states`` (``Stable``, ``Empty``, …) selects groups; it needs Kafka 2.6. Raises BrokerError; PartialError by
        broker if some brokers fail, whose groups are missing then.
        """

        wanted = listed(states, str)

        async def ask(node: Node, its: list[int], deadline: Deadline) -> Outcomes[int, list[GroupListing]]:
            version = await self._version(node, ApiKey.LIST_GROUPS, deadline)
            if wanted and version < _STATES_SINCE:
                raise UnsupportedApiError(
                    f"broker {node} is too old to list groups by state (before Kafka 2.6)"
                )
            answer = await self._call(node, ListGroupsRequest(states_filter=wanted), deadline, version)
            listings = [
                GroupListing(
                    group.group_id, group.protocol_type, group.group_state, group.group_type.lower(), its[0]
                )
                for group in answer.groups
            ]
            return {its[0]: outcome_of(answer.error_code, listings, f"broker {node}")}

        found = await self._ask_nodes("list groups", None, ask, timeout)
        listings = {group.group_id: group for groups in found.values() for group in groups}
        return dict(sorted(listings.items()))

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Groups with their state and members.

        Raises GroupError, with GROUP_ID_NOT_FOUND for an unknown group; PartialError for several groups.
        """

        async def ask(node: Node, some: list[str], deadline: Deadline) -> Outcomes[str, GroupDescription]:
            answer = await self._call(node, DescribeGroupsRequest(groups=some), deadline)
            found = {group.group_id: _group(group, node) for group in answer.groups}
            missing = [name for name, group in found.items() if is_unknown_group(group)]
            found |= await self._describe_assigned(node, missing, deadline)
            missing = [name for name, group in found.items() if is_unknown_group(group)]
            found |= await self._describe_shared(node, missing, deadline)
            missing = [
                name for name, group in found.items() if is_unknown_group(group) or _is_elsewhere(group)
            ]
            return found | await self._describe_coordinated(node, missing, deadline)

        return await self._ask_each(
            "describe groups", listed(group_ids, str), ToCoordinators(self._cluster), ask, timeout
        )

    async def _describe_assigned(
        self, node: Node, names: list[str], deadline: Deadline
    ) -> dict[str, GroupDescription | ClientError]:
        """Describe groups whose partitions the broker assigns (KIP-848)."""
        if not names:
            return {}
        try:
            version = await self._version(node, ApiKey.CONSUMER_GROUP_DESCRIBE, deadline)
        except UnsupportedApiError:  # the broker doesn't support such groups
            return {}
        request = ConsumerGroupDescribeRequest(group_ids=names)
        answer = await self._call(node, request, deadline, version)
        return {
            group.group_id: _assigned_group(group, node)
            for group in answer.groups
            if group.error_code not in _NOT_DESCRIBED
        }

    async def _describe_shared(
        self, node: Node, names: list[str], deadline: Deadline
    ) -> dict[str, GroupDescription | ClientError]:
        """Describe share groups (KIP-932)."""
        if not names:
            return {}
        try:
            version = await self._version(node, ApiKey.SHARE_GROUP_DESCRIBE, deadline)
        except UnsupportedApiError:
            return {}
        answer = await self._call(node, ShareGroupDescribeRequest(group_ids=names), deadline, version)
        return {
            group.group_id: _shared_group(group, node)
            for group in answer.groups
            if group.error_code not in (*_NOT_DESCRIBED, ErrorCode.GROUP_ID_NOT_FOUND)
        }

    async def _describe_coordinated(
        self, node: Node, names: list[str], deadline: Deadline
    ) -> dict[str, GroupDescription | ClientError]:
        """Describe groups of the coordinator of 2012, which is one broker for all of them."""
        if not names or len(self._cluster.nodes) < 2:
            return {}
        try:
            listed = await self.list_groups(timeout=deadline.left())
        except ClientError:
            # A cluster has such groups rarely, and the coordinator that was asked has said that there is no such group.
            return {}
        found: dict[str, GroupDescription | ClientError] = {}
        for name in names:
            group = listed.get(name)
            if group is not None and group.protocol_type == COORDINATED and group.coordinator != node:
                request = DescribeGroupsRequest(groups=[name])
                answer = await self._call(group.coordinator, request, deadline)
                found |= {each.group_id: _group(each, group.coordinator) for each in answer.groups}
        return found

    async def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups without members, with their offsets (from Kafka 1.1 on).

        Raises GroupError with NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND; PartialError for several groups.
        """

        async def ask(node: Node, some: list[str], deadline: Deadline) -> Outcomes[str, None]:
            answer = await self._call(node, DeleteGroupsRequest(groups_names=some), deadline)
            return {
                result.group_id: outcome_of(result.error_code, None, f"group {shown_name(result.group_id)}")
                for result in answer.results
            }

        await self._ask_each(
            "delete groups", listed(group_ids, str), ToCoordinators(self._cluster), ask, timeout
        )

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[MemberToRemove] | None = None,
        *,
        reason: str = "removed by an administrator",
        timeout: float | None = None,
    ) -> None:
        """Remove members from a group, all if none are named (KIP-345, from Kafka 2.4 on).

        The group rebalances; a member that is still running joins again. Raises GroupError with UNKNOWN_MEMBER_ID, …;
        PartialError by MemberToRemove for several.
        """
        deadline = self._deadline(timeout)
        if members is None:
            group = (await self.describe_groups([group_id], timeout=deadline.left()))[group_id]
            members = [
                MemberToRemove("" if member.instance_id else member.member_id, member.instance_id)
                for member in group.members
            ]
        wanted = list(dict.fromkeys(members))
        if not wanted:
            return

        async def ask(node: Node, deadline: Deadline) -> dict[MemberToRemove, ClientError | None]:
            version = await self._version(node, ApiKey.LEAVE_GROUP, deadline)
            if version < _REMOVE_SINCE:
                raise UnsupportedApiError(f"broker {node} is too old to remove members (before Kafka 2.4)")
            request = LeaveGroupRequest(
                group_id=group_id,
                members=[
                    MemberIdentity(
                        member_id=member.member_id, group_instance_id=member.instance_id, reason=reason
                    )
                    for member in wanted
                ],
            )
            answer = await self._call(node, request, deadline, version)
            if answer.error_code:
                raise error_of(answer.error_code, f"group {shown_name(group_id)}")
            codes = {(m.member_id, m.group_instance_id): m.error_code for m in answer.members}
            codes |= {("", m.group_instance_id): m.error_code for m in answer.members if m.group_instance_id}
            missing = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            return {
                member: outcome_of(
                    codes.get((member.member_id, member.instance_id), missing),
                    None,
                    f"member {member} of group {shown_name(group_id)}",
                )
                for member in wanted
            }

        await self._ask_coordinator("remove members", group_id, ask, deadline)


def _assigned_group(group: AssignedGroup, node: Node) -> GroupDescription | ClientError:
    if group.error_code:
        # The broker's message only says that the group isn't of the newer type.
        is_missing = group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        return error_of(
            group.error_code,
            f"group {shown_name(group.group_id)}",
            None if is_missing else group.error_message,
        )
    members = (_assigned_member(member, member.instance_id) for member in group.members)
    return _described(group, node, CONSUMER, "consumer", members)


def _shared_group(group: SharedGroup, node: Node) -> GroupDescription | ClientError:
    if group.error_code:
        return error_of(group.error_code, f"group {shown_name(group.group_id)}", group.error_message or None)
    return _described(group, node, SHARE, SHARE, (_assigned_member(member, None) for member in group.members))


def _described(
    group: AssignedGroup | SharedGroup,
    node: Node,
    kind: str,
    protocol: str,
    members: Iterable[MemberDescription],
) -> GroupDescription:
    coordinator = -1 if node is None else node
    return GroupDescription(
        group.group_id, group.group_state, kind, group.assignor_name, coordinator, tuple(members), protocol
    )


def _assigned_member(member: AssignedMember | SharedMember, instance_id: str | None) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        frozenset(
            TopicPartition(topic.topic_name, index)
            for topic in member.assignment.topic_partitions
            for index in topic.partitions
        ),
        tuple(sorted(member.subscribed_topic_names)),
    )


def _group(group: DescribedGroup, node: Node) -> GroupDescription | ClientError:
    what = f"group {shown_name(group.group_id)}"
    if group.error_code:
        return error_of(group.error_code, what)
    if group.group_state == "Dead":  # the response for an unknown group up to version 5
        return error_of(ErrorCode.GROUP_ID_NOT_FOUND, what)
    is_of_consumers = group.protocol_type in (CONSUMER, COORDINATED, IN_ZOOKEEPER)
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        -1 if node is None else node,
        tuple(_member(member, is_of_consumers) for member in group.members),
    )


def _is_elsewhere(group: GroupDescription | ClientError) -> bool:
    """Whether another broker, which is the coordinator of 2012, knows the group's members."""
    return isinstance(group, GroupDescription) and group.protocol_type == COORDINATED and not group.members


def _member(member: DescribedGroupMember, is_of_consumers: bool) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        _assigned(member.member_assignment) if is_of_consumers else frozenset(),
        _subscribed(member.member_metadata) if is_of_consumers else (),
    )


def _assigned(data: bytes) -> frozenset[TopicPartition]:
    """A member's partitions; none while the group rebalances, and none if the bytes aren't a valid assignment."""
    try:
        topics = decode_assignment(data).assigned_partitions if data else []
    except ProtocolError:
        return frozenset()
    return frozenset(TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)


def _subscribed(data: bytes) -> tuple[str, ...]:
    try:
        return tuple(sorted(decode_subscription(data).topics)) if data else ()
    except ProtocolError:
        return ()
