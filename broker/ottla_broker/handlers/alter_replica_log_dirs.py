"""AlterReplicaLogDirs: move replicas between this broker's folders (KIP-113).

It begins moves and doesn't wait for them: DescribeLogDirs shows how far they are. A partition that this broker doesn't
have yet will be created in the folder, and is answered with an error. Kafka: ``ReplicaManager.alterReplicaLogDirs``.
"""

from __future__ import annotations

from ottla_broker.log.names import MAX_FOLDER_NAME, future_folder
from ottla_broker.requests.api import ALTER, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import alter_replica_log_dirs as wire

API = Api(34, (0, 2), needs={CLUSTER: ALTER}, memory=4 * MiB)

_UNIQUE = "0" * 32


async def handle(
    ctx: RequestContext, request: wire.AlterReplicaLogDirsRequest
) -> wire.AlterReplicaLogDirsResponse:
    wanted = {
        (t.name, index): each.path for each in request.dirs for t in each.topics for index in t.partitions
    }
    topics: dict[str, wire.AlterReplicaLogDirTopicResult] = {}
    for (name, index), path in wanted.items():
        await pause(5)
        topic = topics.setdefault(name, wire.AlterReplicaLogDirTopicResult(topic_name=name, partitions=[]))
        code = await _alter(ctx, name, index, path)
        topic.partitions.append(
            wire.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        )
    return wire.AlterReplicaLogDirsResponse(results=list(topics.values()))


async def _alter(ctx: RequestContext, topic: str, index: int, path: str) -> ErrorCode:
    if not ctx.authorize(AclResource.CLUSTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if len(future_folder(topic, index, _UNIQUE)) > MAX_FOLDER_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    logs, replicas = ctx.services.logs, ctx.services.replicas
    folder = logs.folder(path)
    if folder is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if folder.failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        if not logs.has(topic, index):
            logs.preferred_folders[topic, index] = folder
        await in_task(replicas.moves.alter(ctx.find_partition(topic, index), folder))
    except KafkaError as error:
        # Older than NOT_LEADER_OR_FOLLOWER, and kept by Kafka for this API.
        moved = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if moved else error.code
    return ErrorCode.NONE
