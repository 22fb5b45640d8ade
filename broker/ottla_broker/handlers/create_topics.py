"""CreateTopics: create topics, or only validate the request.

Version 1 can only validate, 4 accepts -1 for the broker's defaults (KIP-464), 5 answers with the topic's numbers and
configs (KIP-525), 7 with its id. Topics exist when the response is sent, so the request's timeout never expires.
"""

from __future__ import annotations

from collections import Counter

from ottla_broker.config.describe import describe_topic
from ottla_broker.controller.api import CreatedTopic, NewTopic
from ottla_broker.requests.api import CREATE, TOPIC, Api
from ottla_broker.requests.context import THROTTLED, RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import create_topics as wire

# CREATE on the cluster is enough; DESCRIBE_CONFIGS shows the new topic's configs.
API = Api(19, (0, 7), needs={TOPIC: CREATE})


async def handle(ctx: RequestContext, request: wire.CreateTopicsRequest) -> wire.CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    # One result per name, in the order of the request.
    asked = {topic.name: topic for topic in request.topics}
    every = ctx.may(AclOperation.CREATE, AclResource.CLUSTER)
    wanted = []
    for topic in asked.values():
        await pause(5)
        if counts[topic.name] == 1 and (every or ctx.authorize(AclResource.TOPIC, topic.name)):
            wanted.append(_new_topic(topic))
    refused = [topic for topic in wanted if not ctx.accepts_mutation(_partitions(ctx, topic), strict_since=6)]
    bad = {
        topic.name: CreatedTopic(ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED, name=topic.name)
        for topic in refused
    }
    wanted = [topic for topic in wanted if topic.name not in bad]
    created = await in_task(ctx.services.controller.create_topics(wanted, request.validate_only))
    outcomes = {outcome.name: outcome for outcome in created} | bad
    results = []
    for name in asked:
        await pause(5)
        outcome = outcomes.get(name)
        if outcome is None and counts[name] > 1:
            outcome = CreatedTopic(
                ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.", name=name
            )
        elif outcome is None:
            outcome = CreatedTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.", name=name)
        results.append(_result(ctx, outcome))
    return wire.CreateTopicsResponse(topics=results)


def _partitions(ctx: RequestContext, topic: NewTopic) -> int:
    """Return the number of partitions that a topic asks for."""
    if topic.assignments:
        return len(topic.assignments)
    return topic.num_partitions if topic.num_partitions > 0 else ctx.services.config.num_partitions


def _new_topic(topic: wire.CreatableTopic) -> NewTopic:
    assignments = {a.partition_index: a.broker_ids for a in topic.assignments}
    twice = None
    if len(assignments) < len(topic.assignments):
        ((twice, _),) = Counter(a.partition_index for a in topic.assignments).most_common(1)
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {c.name: c.value for c in topic.configs},
        twice,
    )


def _result(ctx: RequestContext, outcome: CreatedTopic) -> wire.CreatableTopicResult:
    result = wire.CreatableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=outcome.error,
        error_message=outcome.message,
        num_partitions=outcome.num_partitions,
        replication_factor=outcome.replication_factor,
    )
    if outcome.error is ErrorCode.NONE and ctx.version >= 5:
        if not ctx.may(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, outcome.name):
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            result.num_partitions = result.replication_factor = -1
            return result
        result.configs = [
            wire.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(ctx.services.config, outcome.configs)
        ]
    return result
