"""CreatePartitions: adds partitions to topics, or only validates the request.

A topic can't have fewer. The new partitions exist when the response is sent.
"""

from __future__ import annotations

from collections import Counter

from ottla_broker.controller.api import MorePartitions, Outcome
from ottla_broker.requests.api import ALTER, TOPIC, Api
from ottla_broker.requests.context import THROTTLED, RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

API = Api(37, (0, 3), needs={TOPIC: ALTER})

_TWICE = Outcome(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
_FORBIDDEN = Outcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "The topic authorization is failed.")
_THROTTLED = Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED)


async def handle(ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    wanted = []
    for each in asked.values():
        await pause(5)
        if counts[each.name] == 1 and ctx.authorize(AclResource.TOPIC, each.name):
            brokers = None if each.assignments is None else [a.broker_ids for a in each.assignments]
            wanted.append(MorePartitions(each.name, each.count, brokers))
    refused = {topic.name for topic in wanted if not ctx.accepts_mutation(_added(ctx, topic), strict_since=3)}
    wanted = [topic for topic in wanted if topic.name not in refused]
    done = await in_task(ctx.services.controller.create_partitions(wanted, request.validate_only))
    outcomes = {topic.name: outcome for topic, outcome in zip(wanted, done, strict=True)}
    outcomes.update(dict.fromkeys(refused, _THROTTLED))
    results = []
    for name in asked:
        await pause(5)
        outcome = outcomes.get(name, _TWICE if counts[name] > 1 else _FORBIDDEN)
        results.append(
            CreatePartitionsTopicResult(name=name, error_code=outcome.error, error_message=outcome.message)
        )
    return CreatePartitionsResponse(results=results)


def _added(ctx: RequestContext, topic: MorePartitions) -> int:
    """Return the number of partitions that a topic gets."""
    known = ctx.services.metadata.topic(topic.name)
    return max(0, topic.count - (0 if known is None else len(known.partitions)))
