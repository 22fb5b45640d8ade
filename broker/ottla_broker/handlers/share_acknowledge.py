"""ShareAcknowledge: acknowledge acquired records of a share group (KIP-932).

The response waits until the acknowledgements are persisted. Version 2 can renew locks (KIP-1222).
"""

from __future__ import annotations

from ottla_broker.api_parts.share_requests import (
    AckResults,
    acknowledge,
    acknowledgements,
    check_member,
    endpoints,
    finish,
    leader_of,
    services,
)
from ottla_broker.coordinator.share.in_flight import Acknowledgement
from ottla_broker.coordinator.share.sessions import INITIAL
from ottla_broker.coordinator.share.state_batches import TopicIdPartition
from ottla_broker.requests.api import GROUP, READ, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import share_acknowledge as wire

# About 3,500 partitions, which are read in one turn.
API = Api(79, (1, 2), feature="share groups", coordinated=True, needs={GROUP: READ, TOPIC: READ}, memory=MiB)


async def handle(ctx: RequestContext, request: wire.ShareAcknowledgeRequest) -> wire.ShareAcknowledgeResponse:
    epoch = request.share_session_epoch
    try:
        group_id, member_id = check_member(ctx, request.group_id, request.member_id)
        if epoch == INITIAL:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "A share session begins with a ShareFetch."
            )
        shares = services(ctx)
        session = shares.sessions.find(group_id, member_id, epoch)
    except KafkaError as error:
        return wire.ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    wanted: dict[TopicIdPartition, list[Acknowledgement]] = {
        (bytes(topic.topic_id), each.partition_index): acknowledgements(each.acknowledgement_batches)
        for topic in request.topics
        for each in topic.partitions
    }
    done: Result[AckResults] = Result()
    acknowledge(ctx, shares.partitions, session, wanted, request.is_renew_ack, done.give)
    try:
        results = await done
    finally:
        finish(shares.sessions, session, epoch)
    return _response(ctx, results, shares.partitions.settings_of(group_id).lock_ms)


def _response(ctx: RequestContext, results: AckResults, lock_ms: int) -> wire.ShareAcknowledgeResponse:
    topics: dict[bytes, wire.ShareAcknowledgeTopicResponse] = {}
    leaders: list[int] = []
    for place, error in results.items():
        data = wire.PartitionData(partition_index=place[1])
        if error is not None:
            data.error_code = error.code
            data.error_message = error.message
            if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = leader_of(ctx, place)
                if leader is not None:
                    data.current_leader = leader
                    leaders.append(leader.leader_id)
        topic = topics.setdefault(place[0], wire.ShareAcknowledgeTopicResponse(topic_id=place[0]))
        topic.partitions.append(data)
    return wire.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=endpoints(ctx, leaders),
    )
