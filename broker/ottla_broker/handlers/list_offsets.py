"""ListOffsets: the offset at a point in time.

Timestamps with a meaning: -1 the end (committed, or stable for read_committed), -2 the start, -3 the record with the
largest timestamp (KIP-734, version 7), -4 the start of local storage (KIP-405, version 8), -5 the end of remote storage
(version 9; there is none, so -1). Version 0 returns a list of offsets.

Only the leader answers, except that followers answer the debugging consumer (replica id -2). Replicas and the debugging
consumer get the log's end instead of the committed end. After an election a leader doesn't know how far records are
committed until its high watermark reaches the start of its epoch: clients get OFFSET_NOT_AVAILABLE rather than an
offset lower than before (KIP-207).
"""

from __future__ import annotations

from ottla_broker.replica.partition import Partition
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_slices, pause
from ottla_broker.requests.turns import OPENED
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import list_offsets as wire

API = Api(2, (0, 9), needs={TOPIC: DESCRIBE, CLUSTER: CLUSTER_ACTION})

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
_NAMED_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

READ_COMMITTED = 1
CONSUMER = -1
DEBUGGING = -2
_NOT_AVAILABLE_SINCE = 5


async def handle(ctx: RequestContext, request: wire.ListOffsetsRequest) -> wire.ListOffsetsResponse:
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            (repeated if key in seen else seen).add(key)
        await pause(1 + len(topic.partitions) // 10)
    replica_id = ctx.checked_replica(request.replica_id)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            work = 1
            answer = wire.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            answers.append(answer)
            try:
                if (topic.name, asked.partition_index) in repeated:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if asked.timestamp < 0 and ctx.version < _NAMED_SINCE.get(asked.timestamp, 99):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                partition = ctx.partition(topic.name, asked.partition_index, replica_id)
                work = 1 if partition.is_open else OPENED
                partition.check_readable(asked.current_leader_epoch, any_replica=replica_id == DEBUGGING)
                known = True
                if replica_id != CONSUMER:
                    end = partition.log.log_end_offset
                else:
                    end = (
                        partition.last_stable_offset
                        if request.isolation_level == READ_COMMITTED
                        else partition.high_watermark
                    )
                    known = partition.high_watermark >= partition.epoch_start
                if ctx.version == 0:
                    answer.old_style_offsets = _old_style(partition, asked, end, ctx.services.clock.now_ms())
                else:
                    await _find(partition, asked.timestamp, end, known, answer)
            except KafkaError as error:
                answer.error_code = error.code
                if error.code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.version < _NOT_AVAILABLE_SINCE:
                    answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
            if ctx.version < 4:
                # Unknown to these versions.
                answer.leader_epoch = -1
            await pause(work)
        await pause(1)
        topics.append(wire.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return wire.ListOffsetsResponse(topics=topics)


async def _find(
    partition: Partition, timestamp: int, end: int, known: bool, answer: wire.ListOffsetsPartitionResponse
) -> None:
    """``known``: ``end`` is certainly the end of the committed records. Raises KafkaError."""
    log = partition.log
    if timestamp == LATEST:
        if not known:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        answer.offset = end
        answer.leader_epoch = partition.leader_epoch
        return
    if timestamp == LATEST_TIERED:
        return
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        answer.leader_epoch = log.epochs.epoch_at(log.log_start_offset)
        return
    reader = log.reader
    found = await in_slices(
        reader.find_max_timestamp() if timestamp == MAX_TIMESTAMP else reader.find_timestamp(timestamp)
    )
    if found is not None and found[0] < end:
        answer.offset, answer.timestamp, epoch = found
        answer.leader_epoch = epoch
    elif not known:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)


def _old_style(partition: Partition, asked: wire.ListOffsetsPartition, end: int, now_ms: int) -> list[int]:
    """Version 0: base offsets of segments older than a time, latest first (Kafka's legacyFetchOffsets)."""
    log = partition.log
    start = log.log_start_offset
    offsets = [max(segment.base_offset, start) for segment in log.segments]
    times = [segment.files.modified_ms(segment.file.path) for segment in log.segments]
    if log.segments[-1].size > 0:
        offsets.append(end)
        times.append(now_ms)
    if asked.timestamp == LATEST:
        first = len(offsets) - 1
    elif asked.timestamp == EARLIEST:
        first = 0
    else:
        first = max((i for i, t in enumerate(times) if t <= asked.timestamp), default=-1)
    wanted = offsets[: first + 1] if first >= 0 else []
    return sorted(set(wanted), reverse=True)[: max(0, asked.max_num_offsets)]
