"""Asks the controller to change in-sync replicas: Kafka's ``AlterPartitionManager`` (KIP-497).

One request at a time carries all changes that have come up meanwhile. A change that the controller hasn't decided is
sent again after a pause, until the partition has a decision or a newer state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.replica.broker_link import BrokerLink
from ottla_broker.replica.isr import IsrChange, IsrOutcome
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import alter_partition as wire

_log = get_logger()

_RETRY_SECONDS: Final = (0.05, 1.0)
_TIMEOUT_SECONDS: Final = 30.0
_IDS_SINCE: Final = 2
_EPOCHS_SINCE: Final = 3


@dataclass(eq=False)
class AlterPartitionManager:
    """Owned by the loop thread; one task asks while changes are waiting.

    ``connect`` returns the open connection to the controller or raises ConnectionError.
    """

    _broker_id: int
    _broker_epoch: Callable[[], int]
    _connect: Callable[[], Awaitable[BrokerLink]]
    _clock: Clock
    _waiting: dict[tuple[str, int], IsrChange] = field(default_factory=dict, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def propose(self, change: IsrChange) -> None:
        """Ask for a change; it replaces one of the same partition that hasn't been sent yet."""
        self._waiting[change.topic, change.partition] = change
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._waiting.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        pause, longest = _RETRY_SECONDS
        try:
            while self._waiting:
                changes, self._waiting = self._waiting, {}
                try:
                    again = await self._ask(changes)
                except (ConnectionError, TimeoutError) as error:
                    _log.info("the controller was not asked", about="in-sync replicas", reason=str(error))
                    again = changes
                if again:
                    # Newer proposals for the same partitions win.
                    self._waiting = {**again, **self._waiting}
                    await self._clock.sleep(pause)
                    pause = min(longest, pause * 2)
                else:
                    pause = _RETRY_SECONDS[0]
        finally:
            self._task = None

    async def _ask(self, changes: dict[tuple[str, int], IsrChange]) -> dict[tuple[str, int], IsrChange]:
        """Send the changes; returns those that must be sent again."""
        link = await self._connect()
        version = link.version_of(ApiKey.ALTER_PARTITION)
        answer = await link.submit(self._request(changes, version), timeout=_TIMEOUT_SECONDS, version=version)
        if answer.error_code:
            _log.info(
                "the controller refuses changes of in-sync replicas", error=ErrorCode(answer.error_code).name
            )
            return changes
        names = {change.topic_id: change.topic for change in changes.values()}
        outcomes: dict[tuple[str, int], IsrOutcome] = {}
        for topic in answer.topics:
            name = names.get(topic.topic_id, "") if version >= _IDS_SINCE else topic.topic_name
            for data in topic.partitions:
                outcomes[name, data.partition_index] = IsrOutcome(
                    ErrorCode(data.error_code), data.leader_epoch, data.partition_epoch, tuple(data.isr)
                )
        return {
            key: change
            for key, change in changes.items()
            if key not in outcomes or not change.on_answer(change, outcomes[key])
        }

    def _request(self, changes: dict[tuple[str, int], IsrChange], version: int) -> wire.AlterPartitionRequest:
        topics: dict[str, wire.TopicData] = {}
        for (name, index), change in changes.items():
            if name not in topics:
                topics[name] = wire.TopicData(topic_name=name, topic_id=change.topic_id, partitions=[])
            data = wire.PartitionData(
                partition_index=index,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
            )
            if version >= _EPOCHS_SINCE:
                data.new_isr_with_epochs = [
                    wire.BrokerState(
                        broker_id=broker,
                        broker_epoch=self._broker_epoch() if broker == self._broker_id else epoch,
                    )
                    for broker, epoch in zip(change.isr, change.epochs, strict=True)
                ]
            else:
                data.new_isr = list(change.isr)
            topics[name].partitions.append(data)
        return wire.AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )
