"""DescribeLogDirs: the data folders, their logs, and the space on their volumes.

Null asks for all logs. A log that moves is in both of its folders. A log that is still closed isn't opened: the
sizes of its files are added up. Version 3 has an error for the whole request, 4 the sizes of the volumes (KIP-827).
"""

from __future__ import annotations

import os.path

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.log import Log
from ottla_broker.requests.api import CLUSTER, DESCRIBE, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import describe_log_dirs as wire

API = Api(35, (0, 4), needs={CLUSTER: DESCRIBE}, gate=CLUSTER, memory=MiB)

_log = get_logger()

# Logs described in a turn of the event loop.
_SLICE = 100


async def handle(ctx: RequestContext, request: wire.DescribeLogDirsRequest) -> wire.DescribeLogDirsResponse:
    logs = _wanted(ctx, request)
    results = []
    for folder in ctx.services.logs.folders:
        result = wire.DescribeLogDirsResult(log_dir=os.path.abspath(folder.path))
        results.append(result)
        if folder.failed:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            continue
        try:
            result.total_bytes, result.usable_bytes = folder.files.space(folder.path)
            prefix = f"{folder.path}/"
            topics: dict[str, wire.DescribeLogDirsTopic] = {}
            for log in logs:
                await pause(5)
                if not str(log.path).startswith(prefix):
                    continue
                try:
                    partition = _partition(ctx, log)
                except FileNotFoundError:
                    # Deleted since the list was made.
                    continue
                topic = topics.setdefault(log.topic, wire.DescribeLogDirsTopic(name=log.topic))
                topic.partitions.append(partition)
        except OSError as error:
            _log.error("a data folder can't be described", folder=folder.path, reason=str(error))
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            result.topics = list(topics.values())
    return wire.DescribeLogDirsResponse(results=results)


def _wanted(ctx: RequestContext, request: wire.DescribeLogDirsRequest) -> list[Log]:
    logs = ctx.services.logs
    if request.topics is None:
        return list(logs.stored_logs())
    asked = dict.fromkeys((t.topic, partition) for t in request.topics for partition in t.partitions)
    return [log for key in asked for log in (logs.get(*key), logs.future.get(*key)) if log is not None]


def _partition(ctx: RequestContext, log: Log) -> wire.DescribeLogDirsPartition:
    is_future = ctx.services.logs.future.get(log.topic, log.partition) is log
    return wire.DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=_size(ctx, log),
        offset_lag=_lag(ctx, log, is_future),
        is_future_key=is_future,
    )


def _lag(ctx: RequestContext, log: Log, is_future: bool) -> int:
    """Return how far a log is behind the high watermark, which it never is, or a moving copy behind the log's end.

    -1 where that isn't known: the partition isn't served, or a log isn't open.
    """
    if ctx.services.replicas.partition(log.topic, log.partition) is None:
        return -1
    if not is_future:
        return 0
    current = ctx.services.logs.get(log.topic, log.partition)
    if current is None or not current.is_open or not log.is_open:
        return -1
    return current.log_end_offset - log.log_end_offset


def _size(ctx: RequestContext, log: Log) -> int:
    if log.is_open:
        return log.size
    files = ctx.services.logs.files
    return sum(
        files.size(f"{log.path}/{name}") for name in files.names(str(log.path)) if name.endswith(names.LOG)
    )
