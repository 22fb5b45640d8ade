"""OffsetFetch: a group's committed offsets, from memory.

From version 2 null asks for all topics, and the whole response has an error code. Version 5 adds leader epochs
(KIP-320), 6 is flexible, 7 can ask for stable offsets only (KIP-447), 8 asks for several groups (KIP-709). Version 9
names a member and its epoch, which groups of the consumer protocol check (KIP-848). Version 0 reads from ZooKeeper, or
from the embedded store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from ottla_broker.coordinator.group.commits import Fetched
from ottla_broker.requests.api import DESCRIBE, GROUP, LISTS, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import offset_fetch as wire

API = Api(9, (0, 9), coordinated=True, needs={GROUP: DESCRIBE, TOPIC: DESCRIBE}, memory=4 * MiB, answer=LISTS)

T = TypeVar("T")

_NONE = int(ErrorCode.NONE)
_PORTION: Final = 500
"""Partitions that are looked up at a time."""


async def handle(ctx: RequestContext, request: wire.OffsetFetchRequest) -> wire.OffsetFetchResponse:
    if ctx.version == 0:
        return await _from_zookeeper(ctx, request)
    if ctx.version >= 8:
        return await _several(ctx, request)
    topics = None if request.topics is None else _asked(request.topics)
    error, found = await _fetch(ctx, request.group_id, topics, request.require_stable)
    if error != _NONE and ctx.version < 2:
        # Only partitions have an error code.
        found = [(name, [Fetched(index, error=error) for index in wanted]) for name, wanted in topics or ()]
    answers = await _answers(found, wire.OffsetFetchResponseTopic, wire.OffsetFetchResponsePartition)
    return wire.OffsetFetchResponse(error_code=error, topics=answers)


def _asked(
    topics: Sequence[wire.OffsetFetchRequestTopic | wire.OffsetFetchRequestTopics],
) -> list[tuple[str, Sequence[int]]]:
    """Topics and partitions; a topic without partitions isn't answered, as in Kafka.

    A partition that is named twice is answered once: with its metadata, an answer may be a thousand times as long as
    the question.
    """
    found: dict[str, dict[int, None]] = {}
    for topic in topics:
        if topic.partition_indexes:
            found.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return [(name, list(indexes)) for name, indexes in found.items()]


async def _fetch(
    ctx: RequestContext,
    group_id: str,
    topics: Sequence[tuple[str, Sequence[int]]] | None,
    require_stable: bool,
    member_id: str | None = None,
    epoch: int = -1,
) -> tuple[int, list[tuple[str, list[Fetched]]]]:
    """The offsets of topics that the client may describe; the others get an error."""
    if not ctx.authorize(AclResource.GROUP, group_id):
        return int(ErrorCode.GROUP_AUTHORIZATION_FAILED), []
    if topics is None:
        error, found = ctx.services.groups.fetch(group_id, None, require_stable, member_id, epoch)
        shown = []
        for each in found:
            if ctx.shows(AclResource.TOPIC, each[0]):
                shown.append(each)
            await pause(1 + len(each[1]))
        return error, shown
    allowed: list[tuple[str, Sequence[int]]] = []
    for asked in topics:
        if ctx.authorize(AclResource.TOPIC, asked[0]):
            allowed.append(asked)
        await pause(1)
    error, found = ctx.services.groups.fetch(group_id, allowed[:0], require_stable, member_id, epoch)
    if error != _NONE:
        return error, []
    for some in _some(allowed):
        error, part = ctx.services.groups.fetch(group_id, some, require_stable, member_id, epoch)
        if error != _NONE:
            return error, []
        found += part
        await pause(sum(1 + len(wanted) for _, wanted in some))
    if len(allowed) < len(topics):
        code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        names = {name for name, _ in allowed}
        refused = [(name, wanted) for name, wanted in topics if name not in names]
        found = [*found, *((name, [Fetched(i, error=code) for i in wanted]) for name, wanted in refused)]
    return error, found


def _some(topics: Sequence[tuple[str, Sequence[int]]]) -> Iterator[list[tuple[str, Sequence[int]]]]:
    """The topics in portions of limited size."""
    portion: list[tuple[str, Sequence[int]]] = []
    size = 0
    for name, wanted in topics:
        for start in range(0, len(wanted), _PORTION):
            portion.append((name, wanted[start : start + _PORTION]))
            size += 1 + min(_PORTION, len(wanted) - start)
            if size >= _PORTION:
                yield portion
                portion, size = [], 0
    if portion:
        yield portion


async def _several(ctx: RequestContext, request: wire.OffsetFetchRequest) -> wire.OffsetFetchResponse:
    groups = []
    # A group that is named twice is answered once, as to the first question.
    asked = {group.group_id: group for group in reversed(request.groups)}
    for group in reversed(asked.values()):
        topics = None if group.topics is None else _asked(group.topics)
        error, found = await _fetch(
            ctx, group.group_id, topics, request.require_stable, group.member_id, group.member_epoch
        )
        answers = await _answers(found, wire.OffsetFetchResponseTopics, wire.OffsetFetchResponsePartitions)
        await pause(1)
        groups.append(
            wire.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error, topics=answers)
        )
    return wire.OffsetFetchResponse(groups=groups)


async def _answers(
    found: list[tuple[str, list[Fetched]]], topic: Callable[..., T], partition: Callable[..., object]
) -> list[T]:
    """The topics in the classes of the response: those before version 8 differ from the later ones."""
    topics = []
    last = None
    answers: list[object] = []
    for name, partitions in found:
        if name != last:
            # One topic may have come in several portions.
            answers = []
            topics.append(topic(name=name, partitions=answers))
            last = name
        answers += [
            partition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                metadata=metadata,
                error_code=code,
            )
            for index, offset, leader_epoch, metadata, code in partitions
        ]
        await pause(1 + len(partitions) // 2)
    return topics


async def _from_zookeeper(ctx: RequestContext, request: wire.OffsetFetchRequest) -> wire.OffsetFetchResponse:
    """Version 0, which has error codes for partitions only."""
    services = ctx.services
    asked = [(topic.name, index) for topic in request.topics or () for index in topic.partition_indexes]
    answers: dict[tuple[str, int], tuple[int, int]] = {}
    wanted: list[tuple[str, int]] = []
    group_allowed = ctx.authorize(AclResource.GROUP, request.group_id)
    for key in dict.fromkeys(asked):
        await pause(1)
        name, index = key
        info = services.metadata.topic(name)
        if not group_allowed:
            answers[key] = (-1, int(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        elif not ctx.authorize(AclResource.TOPIC, name):
            answers[key] = (-1, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif info is None or index not in info.partitions:
            answers[key] = (-1, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            wanted.append(key)
    answers.update(await in_task(services.zookeeper_offsets.fetch(request.group_id, wanted)))
    return wire.OffsetFetchResponse(
        topics=[
            wire.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    wire.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=answers[topic.name, index][0],
                        metadata="",
                        error_code=answers[topic.name, index][1],
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )
