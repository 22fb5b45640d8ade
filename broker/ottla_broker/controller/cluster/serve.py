"""What brokers and clients ask of a cluster's controller, protocol messages to protocol messages.

Every function takes the controller that this broker is, or None: then the answer is NOT_CONTROLLER. Kafka:
``KafkaApis`` and the event handlers of ``KafkaController``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ottla_broker.controller.cluster.batch import Replies
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
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla_protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from ottla_broker.controller.cluster.controller import ActiveController

log = get_logger()

BLOCK_SIZE: Final = 1000
"""Producer ids that a broker gets at once."""
_LAST_ID: Final = 2**63 - 1
_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_CODE_SINCE: Final = 1
_NAMES_BEFORE: Final = 2
_EPOCHS_SINCE: Final = 3
_LEADERS_SECONDS: Final = 2.0
"""How long who asks for other leaders is kept waiting for them to lead."""
_EVENT_SECONDS: Final = 30.0
_LEAST_SECONDS: Final = 1.0


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


# ---- ElectLeaders


async def elect_leaders(
    controller: ActiveController | None, request: ElectLeadersRequest, version: int
) -> ElectLeadersResponse:
    """Preferred or unclean elections (KIP-460). Where all partitions are meant, those that need none are left out.

    Version 0 has errors of partitions only.
    """
    asked = request.topic_partitions
    wanted = None if asked is None else [(t.topic, index) for t in asked for index in t.partitions]
    code = ErrorCode.NONE
    results: dict[Partition, KafkaError | None] = {}
    if controller is None:
        code = ErrorCode.NOT_CONTROLLER
    elif request.election_type not in (_PREFERRED, _UNCLEAN):
        code = ErrorCode.INVALID_REQUEST
    else:
        chosen: Callable[[], Iterable[Partition]] = (
            (lambda: list(controller.context.partitions())) if wanted is None else (lambda: wanted)
        )
        replies = Replies()
        unclean = request.election_type == _UNCLEAN
        try:
            results = await controller.do(
                lambda: controller.leader_balancer.elect(chosen(), unclean=unclean, replies=replies),
                _seconds(request.timeout_ms),
            )
            await replies.wait(_LEADERS_SECONDS)
        except KafkaError as error:
            code = error.code
    if code is not ErrorCode.NONE:
        results = {partition: KafkaError(code) for partition in wanted or ()}
    response = ElectLeadersResponse(
        error_code=code if version >= _CODE_SINCE else ErrorCode.NONE, replica_election_results=[]
    )
    topics: dict[str, ReplicaElectionResult] = {}
    for (name, index), failure in results.items():
        if wanted is None and failure is not None and failure.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        if name not in topics:
            topics[name] = ReplicaElectionResult(topic=name, partition_result=[])
            response.replica_election_results.append(topics[name])
        topics[name].partition_result.append(
            PartitionResult(
                partition_id=index,
                error_code=ErrorCode.NONE if failure is None else failure.code,
                error_message=None if failure is None else failure.message,
            )
        )
    return response


# ---- reassignments


async def alter_partition_reassignments(
    controller: ActiveController | None, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Moves to begin or to stop (KIP-455)."""
    if controller is None:
        return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)

    async def begin() -> AlterPartitionReassignmentsResponse:
        response = AlterPartitionReassignmentsResponse(error_message=None, responses=[])
        for topic in request.topics:
            answered = ReassignableTopicResponse(name=topic.name, partitions=[])
            response.responses.append(answered)
            for asked in topic.partitions:
                answer = ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_message=None
                )
                answered.partitions.append(answer)
                try:
                    await controller.reassignments.begin((topic.name, asked.partition_index), asked.replicas)
                except KafkaError as error:
                    answer.error_code, answer.error_message = error.code, error.message
        return response

    try:
        return await controller.do(begin, _seconds(request.timeout_ms))
    except KafkaError as error:
        return AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


async def list_partition_reassignments(
    controller: ActiveController | None, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Moves that are going on."""
    if controller is None:
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
    asked = request.topics
    wanted = None if asked is None else {(t.name, index) for t in asked for index in t.partition_indexes}

    async def look() -> ListPartitionReassignmentsResponse:
        topics: dict[str, OngoingTopicReassignment] = {}
        for (name, index), assignment in controller.reassignments.current().items():
            if wanted is None or (name, index) in wanted:
                found = topics.setdefault(name, OngoingTopicReassignment(name=name, partitions=[]))
                found.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(assignment.replicas),
                        adding_replicas=list(assignment.adding),
                        removing_replicas=list(assignment.removing),
                    )
                )
        return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))

    try:
        return await controller.do(look, _seconds(request.timeout_ms))
    except KafkaError as error:
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)


def _seconds(timeout_ms: int) -> float:
    """How long a client lets a request take; who doesn't want to wait gets it done all the same."""
    return max(_LEAST_SECONDS, timeout_ms / 1000)
