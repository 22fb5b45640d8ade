"""ShareGroupDescribe: share groups with their members and assignments (KIP-932)."""

from __future__ import annotations

from ottla_broker.api_parts.group_descriptions import described_groups, hides, refused
from ottla_broker.coordinator.group.metadata_limit import MEMBER, topics_bytes
from ottla_broker.coordinator.group.modern.topics import TopicsView
from ottla_broker.coordinator.group.share.assignor import ASSIGNOR
from ottla_broker.coordinator.group.share.group import ShareMember
from ottla_broker.requests.api import DESCRIBE, DESCRIPTIONS, GROUP, TOPIC, Api
from ottla_broker.requests.context import NOT_ASKED, RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import share_group_describe as wire
from ottla_protocol.messages.consumer_group_describe import Assignment, TopicPartitions

API = Api(
    77,
    (1, 1),
    feature="share groups",
    coordinated=True,
    needs={GROUP: DESCRIBE, TOPIC: DESCRIBE},
    answer=DESCRIPTIONS,
)


async def handle(
    ctx: RequestContext, request: wire.ShareGroupDescribeRequest
) -> wire.ShareGroupDescribeResponse:
    async def describe(group_id: str) -> wire.DescribedGroup:
        return await _describe(ctx, group_id, request.include_authorized_operations)

    groups = await described_groups(request.group_ids, describe, _size, wire.DescribedGroup)
    return wire.ShareGroupDescribeResponse(groups=groups)


async def _describe(ctx: RequestContext, group_id: str, with_operations: bool) -> wire.DescribedGroup:
    if not ctx.authorize(AclResource.GROUP, group_id):
        return wire.DescribedGroup(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=group_id)
    groups = ctx.services.groups
    try:
        group = groups.describe_share_group(group_id)
    except KafkaError as error:
        return refused(wire.DescribedGroup, group_id, error)
    assert groups.shares is not None
    topics = groups.shares.topics
    members = []
    names: set[str] = set()
    state, epoch, assignment_epoch = group.state, group.epoch, group.assignment_epoch
    for each in list(group.members.values()):
        member = _member(each, topics)
        members.append(member)
        names.update(one.topic_name for one in member.assignment.topic_partitions)
        await pause(5 + len(each.assigned))
    hidden = await hides(ctx, names)
    if hidden is not None:
        return refused(wire.DescribedGroup, group_id, hidden)
    return wire.DescribedGroup(
        group_id=group_id,
        group_state=state,
        group_epoch=epoch,
        assignment_epoch=assignment_epoch,
        assignor_name=ASSIGNOR,
        members=members,
        authorized_operations=ctx.operations(AclResource.GROUP, group_id) if with_operations else NOT_ASKED,
    )


def _size(group: wire.DescribedGroup) -> int:
    """About how many bytes a group's members have in the response."""
    return sum(MEMBER + topics_bytes(member.subscribed_topic_names) for member in group.members)


def _member(member: ShareMember, topics: TopicsView) -> wire.Member:
    assigned = []
    for topic_id, indexes in member.assigned.items():
        name = topics.name_of(topic_id)
        if name is not None:
            assigned.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes)))
    return wire.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(topic_partitions=assigned),
    )
