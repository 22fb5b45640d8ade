"""AlterReplicaLogDirs (key 34), versions 0-2: move replicas between this broker's folders (KIP-113).

Served only with a single folder in ``log.dirs``, where no replica can move: moving between folders isn't built. Kafka:
``ReplicaManager.alterReplicaLogDirs``.
"""

from __future__ import annotations

import os.path

from ottla_broker.handlers.authorization import AclResource
from ottla_broker.handlers.context import RequestContext
from ottla_broker.log.names import MAX_FOLDER_NAME, future_folder
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(ctx: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    wanted = {
        (t.name, index): each.path for each in request.dirs for t in each.topics for index in t.partitions
    }
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wanted.items():
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name, partitions=[]))
        code = _check(ctx, name, index, path)
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _check(ctx: RequestContext, topic: str, index: int, path: str) -> ErrorCode:
    if not ctx.authorize(AclResource.CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if len(future_folder(topic, index)) > MAX_FOLDER_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    folder = next((each for each in ctx.services.logs.folders if os.path.abspath(each.path) == path), None)
    if folder is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if folder.failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        ctx.find_partition(topic, index)
    except KafkaError as error:
        # Older than NOT_LEADER_OR_FOLLOWER, and kept by Kafka for this API.
        moved = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if moved else error.code
    return ErrorCode.NONE
