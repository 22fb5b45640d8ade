"""Parts that the requests to a share coordinator share: APIs 83 to 87, which brokers send (KIP-932).

Each share partition gets its own answer, and the response goes out when all have theirs. A few are begun in each turn
of the event loop. As in Kafka, a request without a group, or with a topic without partitions, has an empty response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.late_requests import late
from ottla_broker.handlers.share_requests import services
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError

_A_FEW: Final = 32
"""How many share partitions are begun in one turn of the event loop: some milliseconds of work."""

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


def serve(api: StateApi, ctx: RequestContext, request: Any) -> Any:
    """The response, or a pending one."""
    if not request.group_id or not request.topics or not all(topic.partitions for topic in request.topics):
        return api.response()
    return _Serving(api, ctx, request).start()


class _Serving:
    """One request. Owned by the loop thread."""

    def __init__(self, api: StateApi, ctx: RequestContext, request: Any) -> None:
        self._api = api
        self._ctx = ctx
        self._group_id: str = request.group_id
        self._is_refused = not ctx.authorize(AclResource.CLUSTER)
        self._topics = {bytes(topic.topic_id): api.topic(topic_id=topic.topic_id) for topic in request.topics}
        self._left: Iterator[tuple[bytes, Any]] = (
            (bytes(topic.topic_id), data) for topic in request.topics for data in topic.partitions
        )
        self._unbegun = self._unanswered = sum(len(topic.partitions) for topic in request.topics)
        self._pending = PendingResponse(self._abandon)

    def start(self) -> PendingResponse:
        self._begin_few()
        return self._pending

    def _abandon(self) -> None:
        """The other broker is gone, and will ask again."""
        self._left, self._unbegun = iter(()), 0

    def _begin_few(self) -> None:
        for topic_id, data in islice(self._left, _A_FEW):
            self._unbegun -= 1
            answered = partial(self._answered, topic_id, data.partition)
            if self._is_refused:
                answered(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
                continue
            if data.partition < 0:
                negative = "The partition id cannot be a negative number."
                answered(KafkaError(ErrorCode.INVALID_REQUEST, negative))
                continue
            key = ShareKey(self._group_id, topic_id, data.partition)
            leader_epoch = getattr(data, "leader_epoch", None)
            coordinator = services(self._ctx).coordinator
            if coordinator.is_late(key, leader_epoch, self._ctx.connection.age.accepted_at):
                self._abandon()
                self._pending.complete(late("the broker that sent it"))
                return
            self._api.begin(coordinator, key, data, answered)
        if self._unbegun:
            self._ctx.services.clock.call_later(0, self._begin_few)

    def _answered(self, topic_id: bytes, partition: int, answer: ShareState | KafkaError | None) -> None:
        api = self._api
        if isinstance(answer, KafkaError):
            result = api.result(partition=partition, error_code=answer.code, error_message=answer.message)
        elif answer is None or api.fields is None:
            result = api.result(partition=partition)
        else:
            result = api.result(partition=partition, **api.fields(answer))
        self._topics[topic_id].partitions.append(result)
        self._unanswered -= 1
        if not self._unanswered and not self._pending.done:
            self._pending.complete(api.response(results=list(self._topics.values())))
