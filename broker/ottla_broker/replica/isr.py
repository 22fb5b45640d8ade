"""Changes of in-sync replicas, asked of the controller: Kafka's ``AlterPartitionManager`` (KIP-497).

One request at a time, with all changes that have come up meanwhile. What could not be asked is asked again, after a
rest, until the partition says that it is settled or that somebody has told it something newer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.replica.replicated import IsrChange, IsrOutcome
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)

log = get_logger()

_RETRY_SECONDS: Final = (0.05, 1.0)
_TIMEOUT_SECONDS: Final = 30.0
_IDS_SINCE: Final = 2
_EPOCHS_SINCE: Final = 3


class ControllerLink(Protocol):
    """A connection to the controller."""

    def version_of(self, api_key: int) -> int: ...

    def submit(
        self, request: AlterPartitionRequest, *, timeout: float, version: int | None = None
    ) -> Awaitable[AlterPartitionResponse]: ...


class IsrChanges:
    """Owned by the loop thread; one task asks, as long as there is something to ask."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        connect: Callable[[], Awaitable[ControllerLink]],
        clock: Clock,
    ) -> None:
        """``connect`` gives the open connection to the controller; it raises ConnectionError."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._connect = connect
        self._clock = clock
        self._waiting: dict[tuple[str, int], IsrChange] = {}
        self._task: asyncio.Task[None] | None = None

    def propose(self, change: IsrChange) -> None:
        """Ask for a change; it takes the place of one of the same partition that has not been asked for yet."""
        self._waiting[change.partition.topic, change.partition.partition] = change
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        self._waiting.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        rest, most = _RETRY_SECONDS
        try:
            while self._waiting:
                changes, self._waiting = self._waiting, {}
                try:
                    again = await self._ask(changes)
                except (ConnectionError, TimeoutError) as error:
                    log.info("the controller was not asked", about="in-sync replicas", reason=str(error))
                    again = changes
                if again:
                    # Newer proposals of the same partitions go first.
                    self._waiting = {**again, **self._waiting}
                    await asyncio.sleep(rest)
                    rest = min(most, rest * 2)
                else:
                    rest = _RETRY_SECONDS[0]
        finally:
            self._task = None

    async def _ask(self, changes: dict[tuple[str, int], IsrChange]) -> dict[tuple[str, int], IsrChange]:
        """Returns what is to be asked again."""
        link = await self._connect()
        version = link.version_of(ApiKey.ALTER_PARTITION)
        answer = await link.submit(self._request(changes, version), timeout=_TIMEOUT_SECONDS, version=version)
        if answer.error_code:
            log.info(
                "the controller refuses changes of in-sync replicas", error=ErrorCode(answer.error_code).name
            )
            return changes
        names = {change.partition.topic_id: change.partition.topic for change in changes.values()}
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
            if key not in outcomes or not change.partition.settle(change, outcomes[key])
        }

    def _request(self, changes: dict[tuple[str, int], IsrChange], version: int) -> AlterPartitionRequest:
        topics: dict[str, TopicData] = {}
        for (name, index), change in changes.items():
            if name not in topics:
                topics[name] = TopicData(topic_name=name, topic_id=change.partition.topic_id, partitions=[])
            data = PartitionData(
                partition_index=index,
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
            )
            if version >= _EPOCHS_SINCE:
                data.new_isr_with_epochs = [
                    BrokerState(
                        broker_id=broker,
                        broker_epoch=self._broker_epoch() if broker == self._broker_id else epoch,
                    )
                    for broker, epoch in zip(change.isr, change.epochs, strict=True)
                ]
            else:
                data.new_isr = list(change.isr)
            topics[name].partitions.append(data)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )
