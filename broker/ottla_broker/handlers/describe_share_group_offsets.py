"""DescribeShareGroupOffsets: where share groups are in their partitions (KIP-932).

Version 1 has the lag: the records that are neither done with nor before the start (KIP-1226).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_broker.api_parts.share_requests import services
from ottla_broker.coordinator.group.share.group import ShareGroup
from ottla_broker.coordinator.share.state_batches import UNINITIALIZED, ShareState, TopicIdPartition
from ottla_broker.events import get_logger
from ottla_broker.requests.api import DESCRIBE, GROUP, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, pause
from ottla_broker.requests.turns import OPENED
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.lag import unread
from ottla_protocol.messages import describe_share_group_offsets as wire

API = Api(
    90,
    (0, 1),
    feature="share groups",
    coordinated=True,
    needs={GROUP: DESCRIBE, TOPIC: DESCRIBE},
    memory=MiB // 2,
)

_log = get_logger()

_Answered = Callable[[wire.DescribeShareGroupOffsetsResponseGroup], None]
_UNKNOWN = -1
_HAS_LAG = 1


async def handle(
    ctx: RequestContext, request: wire.DescribeShareGroupOffsetsRequest
) -> wire.DescribeShareGroupOffsetsResponse:
    groups = {group.group_id: group for group in request.groups}.values()
    answers: list[wire.DescribeShareGroupOffsetsResponseGroup] = []
    elsewhere: list[_Elsewhere] = []
    described: Result[None] = Result()

    def answered(answer: wire.DescribeShareGroupOffsetsResponseGroup) -> None:
        answers.append(answer)
        if len(answers) == len(groups):
            described.give(None)

    asked = [_Group(ctx, group, elsewhere) for group in groups]
    for group in asked:
        group.describe(answered)
    if asked:
        await described
    for group in asked:
        await group.fill()
    if elsewhere and ctx.version >= _HAS_LAG:
        await _add_lags(ctx, elsewhere)
    return wire.DescribeShareGroupOffsetsResponse(groups=answers)


class _Elsewhere(NamedTuple):
    """A partition of the response that another broker leads, which knows how many records it has."""

    answer: wire.DescribeShareGroupOffsetsResponsePartition
    place: tuple[str, int]
    state: ShareState


async def _add_lags(ctx: RequestContext, partitions: Sequence[_Elsewhere]) -> None:
    """Ask the leaders; the lag stays -1 where none answers."""
    found = services(ctx)
    if found.leaders is None:
        return
    by_leader: dict[int, set[tuple[str, int]]] = {}
    for each in partitions:
        leader = found.leader_of(*each.place)
        if leader is not None and leader >= 0:
            by_leader.setdefault(leader, set()).add(each.place)
    bounds: dict[tuple[str, int], tuple[int, int]] = {}
    asked = [found.leaders.bounds(leader, sorted(places)) for leader, places in by_leader.items()]
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, KafkaError):
            _log.info("the lag of share groups isn't known", reason=str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            bounds.update(answer)
    for each in partitions:
        if each.place in bounds:
            each.answer.lag = _left(each.state, *bounds[each.place])


@dataclass(eq=False)
class _Group:
    """One group of the request. Owned by the loop thread.

    ``elsewhere`` gets the partitions whose lag isn't known here.
    """

    _ctx: RequestContext
    _wanted: wire.DescribeShareGroupOffsetsRequestGroup
    _elsewhere: list[_Elsewhere]
    _topics: list[wire.DescribeShareGroupOffsetsResponseTopic] = field(default_factory=list, init=False)
    _states: Mapping[TopicIdPartition, ShareState | KafkaError | None] = field(
        default_factory=dict, init=False
    )

    def describe(self, answered: _Answered) -> None:
        """Find the group's states; :meth:`fill` adds them to the answer."""
        group_id = self._wanted.group_id
        ctx = self._ctx
        try:
            if not ctx.authorize(AclResource.GROUP, group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            group = ctx.services.groups.describe_share_group(group_id)
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND and self._wanted.topics is None:
                # As in Kafka: all offsets of no group are none.
                answered(wire.DescribeShareGroupOffsetsResponseGroup(group_id=group_id))
                return
            answered(
                wire.DescribeShareGroupOffsetsResponseGroup(
                    group_id=group_id, error_code=error.code, error_message=error.message
                )
            )
            return

        def found(states: Mapping[TopicIdPartition, ShareState | KafkaError | None]) -> None:
            self._states = states
            answered(wire.DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=self._topics))

        services(ctx).offsets.describe(group, self._places(group), found)

    async def fill(self) -> None:
        """Add the partitions to the answer: for its lag, a log may have to be opened."""
        known = {bytes(topic.topic_id): topic for topic in self._topics}
        for (topic_id, index), state in sorted(self._states.items(), key=lambda each: each[0]):
            topic = known[topic_id]
            partition = self._ctx.services.replicas.partition(topic.topic_name, index)
            await pause(1 if partition is None or partition.is_open else OPENED)
            topic.partitions.append(self._partition(topic.topic_name, index, state))

    def _places(self, group: ShareGroup) -> list[TopicIdPartition]:
        """The partitions to describe, in the topics of the answer."""
        ctx, metadata = self._ctx, self._ctx.services.metadata
        places: list[TopicIdPartition] = []
        if self._wanted.topics is None:
            for topic_id, topic in group.initialized.items():
                if ctx.shows(AclResource.TOPIC, topic.name):
                    self._topics.append(
                        wire.DescribeShareGroupOffsetsResponseTopic(topic_name=topic.name, topic_id=topic_id)
                    )
                    places += [(topic_id, index) for index in sorted(topic.partitions)]
            return places
        for wanted in {each.topic_name: each for each in self._wanted.topics}.values():
            name = wanted.topic_name
            answer = wire.DescribeShareGroupOffsetsResponseTopic(topic_name=name)
            self._topics.append(answer)
            code = ErrorCode.NONE
            found = None
            if not ctx.authorize(AclResource.TOPIC, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif (found := metadata.topic(name)) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if found is None:
                answer.partitions += [_failed(index, KafkaError(code)) for index in wanted.partitions]
                continue
            answer.topic_id = found.topic_id
            for index in dict.fromkeys(wanted.partitions):
                if index in found.partitions:
                    places.append((bytes(found.topic_id), index))
                else:
                    answer.partitions.append(_failed(index, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        return places

    def _partition(
        self, topic: str, index: int, state: ShareState | KafkaError | None
    ) -> wire.DescribeShareGroupOffsetsResponsePartition:
        if isinstance(state, KafkaError):
            return _failed(index, state)
        if state is None:
            return wire.DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, start_offset=UNINITIALIZED
            )
        answer = wire.DescribeShareGroupOffsetsResponsePartition(
            partition_index=index,
            start_offset=state.start,
            leader_epoch=max(state.leader_epoch, 0),
            lag=self._lag(topic, index, state),
        )
        if answer.lag == _UNKNOWN and state.start >= 0:
            self._elsewhere.append(_Elsewhere(answer, (topic, index), state))
        return answer

    def _lag(self, topic: str, index: int, state: ShareState) -> int:
        """The records that the group has still to work on; -1 if that isn't known here."""
        partition = self._ctx.services.replicas.partition(topic, index)
        if partition is None or not partition.is_led_here or state.start < 0:
            return _UNKNOWN
        return _left(state, partition.log.log_start_offset, partition.high_watermark)


def _left(state: ShareState, start: int, end: int) -> int:
    return unread(state.start, start, end, max(state.completed, 0))


def _failed(index: int, error: KafkaError) -> wire.DescribeShareGroupOffsetsResponsePartition:
    return wire.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNINITIALIZED, error_code=error.code, error_message=error.message
    )
