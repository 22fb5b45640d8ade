"""Changes of in-sync replicas that leaders ask for: AlterPartition (KIP-497).

Kafka's ``KafkaController.tryProcessAlterPartition``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.batch import NewBatch
from ottla_broker.controller.cluster.context import PORTION, Context, PartitionView
from ottla_broker.controller.cluster.event_queue import Event, EventQueue
from ottla_broker.controller.cluster.persistence import Persistence
from ottla_broker.controller.cluster.reassignment import Reassignments
from ottla_broker.store.keys import PartitionState
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import alter_partition as wire

_NAMES_BEFORE: Final = 2
_EPOCHS_SINCE: Final = 3


@dataclass(eq=False)
class AlterPartition:
    """Owned by the controller's task.

    ``refresh`` is posted when a partition turns out to be written by another process.
    """

    _context: Context
    _persistence: Persistence
    _events: EventQueue
    _new_batch: NewBatch
    _reassignments: Reassignments
    _refresh: Event

    async def alter(self, request: wire.AlterPartitionRequest, version: int) -> wire.AlterPartitionResponse:
        """Check and write the changes. Raises KafkaError for an unknown broker, ControllerMovedError, StoreError."""
        context = self._context
        context.check_broker_epoch(
            request.broker_id, request.broker_epoch, ErrorCode.BROKER_ID_NOT_REGISTERED
        )
        response = wire.AlterPartitionResponse()
        answers: dict[Partition, wire.ResponsePartitionData] = {}
        changes: dict[Partition, tuple[PartitionState, int]] = {}
        for topic in request.topics:
            answered = wire.ResponseTopicData(
                topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=[]
            )
            response.topics.append(answered)
            if version < _NAMES_BEFORE:
                found, unknown = context.topics.get(topic.topic_name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                found, unknown = context.topic_by_id(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
            async for data in unhurried(topic.partitions, PORTION):
                answer = wire.ResponsePartitionData(partition_index=data.partition_index)
                answered.partitions.append(answer)
                if found is None:
                    answer.error_code = unknown
                    continue
                partition = (found.name, data.partition_index)
                answers[partition] = answer
                verdict = self._judge(partition, data, version)
                if isinstance(verdict, ErrorCode):
                    answer.error_code = verdict
                elif isinstance(verdict, PartitionView):
                    _fill(answer, verdict)
                else:
                    changes[partition] = verdict
        written = await self._persistence.write_states(changes)
        batch = self._new_batch()
        async for partition in unhurried(changes, PORTION):
            if partition in written:
                context.set_view(partition, written[partition])
                _fill(answers[partition], written[partition])
            else:
                answers[partition].error_code = ErrorCode.INVALID_UPDATE_VERSION
        batch.update_metadata(context.live_or_shutting_down(), written)
        await batch.send()
        if len(written) < len(changes):
            self._events.post(self._refresh)
        if written and self._reassignments.any():
            self._events.post(partial(self._reassignments.resume, list(written)))
        return response

    def _judge(
        self, partition: Partition, data: wire.PartitionData, version: int
    ) -> ErrorCode | PartitionView | tuple[PartitionState, int]:
        """Returns an error, the view if nothing changes, or the new state and the version it replaces."""
        context = self._context
        view = context.view(partition)
        if view is None or context.is_deleting(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = view.state
        if data.leader_epoch > state.leader_epoch or data.partition_epoch > view.version:
            # The leader knows something newer: this broker is probably no longer the controller.
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
                or (broker, partition) in context.replicas_on_offline_dirs
                or epochs.get(broker, -1) not in (-1, context.brokers[broker].epoch)
            ):
                return ErrorCode.INELIGIBLE_REPLICA if version > 1 else ErrorCode.OPERATION_NOT_ATTEMPTED
        return PartitionState(state.leader, state.leader_epoch, isr, context.epoch), view.version


def _fill(answer: wire.ResponsePartitionData, view: PartitionView) -> None:
    answer.leader_id = view.state.leader
    answer.leader_epoch = view.state.leader_epoch
    answer.isr = list(view.state.isr)
    answer.partition_epoch = view.version
