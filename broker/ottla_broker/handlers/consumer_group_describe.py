"""ConsumerGroupDescribe: groups of the consumer protocol with their members (KIP-848).

Version 1 says which protocol each member uses (KIP-1099). Another group's error is GROUP_ID_NOT_FOUND, with a message
that says which protocol holds it.
"""

from __future__ import annotations

from ottla_broker.api_parts.group_descriptions import described_groups, hides, refused
from ottla_broker.coordinator.group.metadata_limit import MEMBER, topics_bytes
from ottla_broker.coordinator.group.modern.describe import MemberDescription, NamedPartitions
from ottla_broker.requests.api import DESCRIBE, DESCRIPTIONS, GROUP, TOPIC, Api
from ottla_broker.requests.context import NOT_ASKED, RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import consumer_group_describe as wire

API = Api(
    69,
    (0, 1),
    feature="consumer protocol",
    coordinated=True,
    needs={GROUP: DESCRIBE, TOPIC: DESCRIBE},
    answer=DESCRIPTIONS,
)

_CLASSIC, _CONSUMER = 0, 1
_TOPIC = 64
"""What a topic of an assignment has besides its partitions, in bytes."""


async def handle(
    ctx: RequestContext, request: wire.ConsumerGroupDescribeRequest
) -> wire.ConsumerGroupDescribeResponse:
    async def describe(group_id: str) -> wire.DescribedGroup:
        return await _describe(ctx, group_id, request.include_authorized_operations)

    groups = await described_groups(request.group_ids, describe, _size, wire.DescribedGroup)
    return wire.ConsumerGroupDescribeResponse(groups=groups)


async def _describe(ctx: RequestContext, group_id: str, with_operations: bool) -> wire.DescribedGroup:
    if not ctx.authorize(AclResource.GROUP, group_id):
        return wire.DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    found = ctx.services.groups.describe_consumer_group(group_id)
    if found.error is not None:
        return refused(wire.DescribedGroup, group_id, found.error)
    members = []
    names: set[str] = set()
    for each in found.members:
        members.append(_member(each))
        names.update(name for _, name, _ in (*each.assigned, *each.target))
        await pause(5 + len(each.assigned) + len(each.target))
    hidden = await hides(ctx, names)
    if hidden is not None:
        return refused(wire.DescribedGroup, group_id, hidden)
    return wire.DescribedGroup(
        group_id=group_id,
        group_state=found.state,
        group_epoch=found.epoch,
        assignment_epoch=found.assignment_epoch,
        assignor_name=found.assignor,
        members=members,
        authorized_operations=ctx.operations(AclResource.GROUP, group_id) if with_operations else NOT_ASKED,
    )


def _size(group: wire.DescribedGroup) -> int:
    """About how many bytes a group's members have in the response."""
    size = 0
    for member in group.members:
        topics = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
        size += MEMBER + topics_bytes(member.subscribed_topic_names)
        size += sum(_TOPIC + 4 * len(each.partitions) for each in topics)
    return size


def _member(found: MemberDescription) -> wire.Member:
    member = found.member
    return wire.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_assignment(found.assigned),
        target_assignment=_assignment(found.target),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _assignment(partitions: NamedPartitions) -> wire.Assignment:
    return wire.Assignment(
        topic_partitions=[
            wire.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for topic_id, name, indexes in partitions
        ]
    )
