"""What brokers and clients ask of a cluster's controller, protocol messages to protocol messages.

Every function takes the controller that this broker is, or None: then the answer is NOT_CONTROLLER. Kafka:
``KafkaApis`` and the event handlers of ``KafkaController``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_broker.controller.cluster.context import Partition, PartitionView
from ottla_broker.events import get_logger
from ottla_broker.store.api import StoreError
from ottla_broker.store.keys import BadNodeError, PartitionState
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla_protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla_protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

if TYPE_CHECKING:
    from ottla_broker.controller.cluster.controller import ActiveController

log = get_logger()

BLOCK_SIZE: Final = 1000
"""Producer ids that a broker gets at once."""
_LAST_ID: Final = 2**63 - 1
_NAMES_BEFORE: Final = 2
_EPOCHS_SINCE: Final = 3
_LEADERS_SECONDS: Final = 2.0
"""How long who asks for other leaders is kept waiting for them to lead."""
_EVENT_SECONDS: Final = 30.0


# ---- AlterPartition


async def alter_partition(
    controller: ActiveController | None, request: AlterPartitionRequest, version: int
) -> AlterPartitionResponse:
    """A leader's changes of in-sync replicas (``tryProcessAlterPartition``)."""
    if controller is None:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        return await controller.do(lambda: _alter(controller, request, version), _EVENT_SECONDS)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)


async def _alter(
    controller: ActiveController, request: AlterPartitionRequest, version: int
) -> AlterPartitionResponse:
    context = controller.context
    controller.members.check_epoch(
        request.broker_id, request.broker_epoch, ErrorCode.BROKER_ID_NOT_REGISTERED
    )
    response = AlterPartitionResponse()
    answers: dict[Partition, ResponsePartitionData] = {}
    changes: dict[Partition, tuple[PartitionState, int]] = {}
    for topic in request.topics:
        answered = ResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=[])
        response.topics.append(answered)
        if version < _NAMES_BEFORE:
            found, unknown = context.topics.get(topic.topic_name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            found, unknown = context.topic_by_id(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        for data in topic.partitions:
            answer = ResponsePartitionData(partition_index=data.partition_index)
            answered.partitions.append(answer)
            if found is None:
                answer.error_code = unknown
                continue
            partition = (found.name, data.partition_index)
            verdict = _judge(controller, partition, data, version)
            answers[partition] = answer
            if isinstance(verdict, ErrorCode):
                answer.error_code = verdict
            elif isinstance(verdict, PartitionView):
                _fill(answer, verdict)
            else:
                changes[partition] = verdict
    written = await controller.persistence.write_states(changes)
    batch = controller.batch()
    for partition in changes:
        if partition in written:
            context.set_view(partition, written[partition])
            _fill(answers[partition], written[partition])
        else:
            answers[partition].error_code = ErrorCode.INVALID_UPDATE_VERSION
    batch.tell(context.live_or_leaving(), written)
    controller.send(batch)
    if len(written) < len(changes):
        # Somebody else has written them.
        controller.post(controller.topics.refresh)
    if written and controller.reassignments.any():
        moved = list(written)
        controller.post(lambda: controller.reassignments.resume(moved))
    return response


def _judge(
    controller: ActiveController, partition: Partition, data: PartitionData, version: int
) -> ErrorCode | PartitionView | tuple[PartitionState, int]:
    """Why a change can't be; the state, where it is so already; or what to write over which version."""
    context = controller.context
    view = context.view(partition)
    if view is None or context.is_deleting(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state = view.state
    if data.leader_epoch > state.leader_epoch or data.partition_epoch > view.version:
        # The leader knows of something newer: this is likely the controller no longer.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    epochs = {each.broker_id: each.broker_epoch for each in data.new_isr_with_epochs}
    isr = list(epochs) if version >= _EPOCHS_SINCE else list(data.new_isr)
    if isr == list(state.isr):
        return view
    if data.partition_epoch < view.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if (
        state.leader not in isr
        or not set(isr) <= set(context.replicas(partition))
        or data.leader_recovery_state
    ):
        return ErrorCode.INVALID_REQUEST
    live = context.live()
    for broker in isr:
        if (
            broker not in live
            or (broker, partition) in context.bad_disks
            or epochs.get(broker, -1) not in (-1, context.brokers[broker].epoch)
        ):
            return ErrorCode.INELIGIBLE_REPLICA if version > 1 else ErrorCode.OPERATION_NOT_ATTEMPTED
    return PartitionState(state.leader, state.leader_epoch, isr, context.epoch), view.version


def _fill(answer: ResponsePartitionData, view: PartitionView) -> None:
    answer.leader_id = view.state.leader
    answer.leader_epoch = view.state.leader_epoch
    answer.isr = list(view.state.isr)
    answer.partition_epoch = view.version


# ---- ControlledShutdown


async def controlled_shutdown(
    controller: ActiveController | None, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """A broker is about to stop. The answer comes when the new leaders lead, or after a moment."""
    if controller is None:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        left, replies = await controller.do(
            lambda: controller.members.leave(request.broker_id, request.broker_epoch), _EVENT_SECONDS
        )
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    await replies.wait(_LEADERS_SECONDS)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=name, partition_index=index) for name, index in left
        ]
    )


# ---- AllocateProducerIds


async def allocate_producer_ids(
    controller: ActiveController | None, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """A block of producer ids for a broker."""
    if controller is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)

    async def take() -> AllocateProducerIdsResponse:
        controller.members.check_epoch(
            request.broker_id, request.broker_epoch, ErrorCode.BROKER_ID_NOT_REGISTERED
        )
        try:
            block = await controller.persistence.take_block(request.broker_id, BLOCK_SIZE)
        except BadNodeError as error:
            raise StoreError(str(error)) from error
        if block.last > _LAST_ID:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been given out")
        return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=BLOCK_SIZE)

    try:
        return await controller.do(take, _EVENT_SECONDS)
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
