"""Parts that the requests to a share coordinator share: APIs 83 to 87, which brokers send (KIP-932).

Each share partition gets its own answer, and the response goes out when all have theirs. As in Kafka, a request without
a group, or with a topic without partitions, has an empty response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla_broker.api_parts.share_requests import services
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, pause
from ottla_broker.requests.late_requests import late
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError

_WORK: Final = 30
"""The work of beginning with a share partition, in elements of a handler."""

Answered = Callable[[Any], None]
"""Called once with what became of a share partition: its state, a KafkaError, or None: it is done."""


class StateApi(NamedTuple):
    """The differences between the five APIs.

    Attributes:
        begin: asks the coordinator for one share partition of a request.
        response, topic, result: make the response and its parts.
        fields: of a result that has a state.
    """

    begin: Callable[[ShareStateCoordinator, ShareKey, Any, Answered], None]
    response: Callable[..., Any]
    topic: Callable[..., Any]
    result: Callable[..., Any]
    fields: Callable[[ShareState], dict[str, Any]] | None = None


async def serve(api: StateApi, ctx: RequestContext, request: Any) -> Any:
    """The response, once every share partition has its answer."""
    if not request.group_id or not request.topics or not all(topic.partitions for topic in request.topics):
        return api.response()
    topics = {bytes(topic.topic_id): api.topic(topic_id=topic.topic_id) for topic in request.topics}
    is_refused = not ctx.authorize(AclResource.CLUSTER)
    asked: list[tuple[bytes, int, Result[Any]]] = []
    for topic in request.topics:
        for data in topic.partitions:
            answer: Result[Any] = Result()
            key = ShareKey(request.group_id, bytes(topic.topic_id), data.partition)
            if is_refused:
                answer.give(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            elif data.partition < 0:
                negative = "The partition id cannot be a negative number."
                answer.give(KafkaError(ErrorCode.INVALID_REQUEST, negative))
            else:
                coordinator = services(ctx).coordinator
                leader_epoch = getattr(data, "leader_epoch", None)
                if coordinator.is_late(key, leader_epoch, ctx.connection.age.accepted_at):
                    raise late("the broker that sent it")
                api.begin(coordinator, key, data, answer.give)
            asked.append((key.topic_id, data.partition, answer))
            await pause(_WORK)
    for topic_id, partition, answer in asked:
        topics[topic_id].partitions.append(_result(api, partition, await answer))
    return api.response(results=list(topics.values()))


def _result(api: StateApi, partition: int, answer: ShareState | KafkaError | None) -> Any:
    if isinstance(answer, KafkaError):
        return api.result(partition=partition, error_code=answer.code, error_message=answer.message)
    if answer is None or api.fields is None:
        return api.result(partition=partition)
    return api.result(partition=partition, **api.fields(answer))
