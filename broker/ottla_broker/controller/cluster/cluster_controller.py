"""The controller as this broker's handlers see it, in a cluster: see :mod:`ottla_broker.controller.api`.

What only the controller may do runs if this broker is the controller. Otherwise it fails with NOT_CONTROLLER, and the
client asks the controller. Any broker can change configs: it writes them to the store. What a broker itself needs of
the controller (topics created on first use, producer ids) it requests over a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.controller.api import (
    CreatedTopic,
    DeletedTopic,
    MorePartitions,
    NewTopic,
    Outcome,
    Partition,
    ResourceType,
    TopicToDelete,
)
from ottla_broker.controller.client_quotas import Configs
from ottla_broker.controller.cluster.batch import Replies
from ottla_broker.controller.config_admin import ConfigAdmin, entity_of
from ottla_broker.controller.new_topics import new_topic_on_first_use
from ottla_broker.controller.producer_ids import ProducerIds
from ottla_broker.controller.stored_passwords import StoredPasswords
from ottla_broker.events import get_logger
from ottla_broker.metadata.cache import MetadataCache, TopicInfo
from ottla_broker.replica.broker_link import BrokerLink
from ottla_broker.store.keys import Assignment, ProducerIdBlock
from ottla_broker.tasks import unhurried
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.config import BrokerConfig
    from ottla_broker.controller.cluster.controller import ActiveController

_log = get_logger()

TIMEOUT_SECONDS: Final = 25.0
"""How long a request to the controller may take: less than clients wait by default."""
ENSURE_SECONDS: Final = 10.0
"""How long to wait for a topic that is created on first use."""
_APPLIED_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.005
_RETRY_SECONDS: Final = 0.1
_EVENT_SECONDS: Final = 30.0
_LEADERS_SECONDS: Final = 2.0
"""How long to wait for new leaders to lead, after an election or before a broker stops."""
_DEFAULTS_SINCE: Final = 4

_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that may be gone a moment later, when a new controller is elected or knows this broker."""


class _Awaited(NamedTuple):
    """A topic whose leaders are waited for."""

    name: str
    partitions: int
    outcome: Outcome
    id: bytes | None


class ClusterController(ConfigAdmin):
    """Owned by the loop thread."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        metadata: MetadataCache,
        clock: Clock,
        random: Random,
        configs: Configs,
        to_controller: Callable[[], Awaitable[BrokerLink]],
        wait_for: Callable[[Callable[[], bool], float], Awaitable[bool]],
        broker_epoch: Callable[[], int],
        active: Callable[[], ActiveController | None],
    ) -> None:
        """``to_controller`` connects to the controller, or raises ConnectionError.

        ``wait_for`` waits a number of seconds for this broker's metadata to fulfil a condition. ``active`` returns the
        controller if it is this broker.
        """
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._random = random
        self._configs = configs
        self._passwords = StoredPasswords(config, random)
        self._to_controller = to_controller
        self._wait_for = wait_for
        self._broker_epoch = broker_epoch
        self._active = active
        self._lock = asyncio.Lock()
        self._creating: dict[str, asyncio.Task[TopicInfo]] = {}
        self.next_producer_id = ProducerIds(self._next_block).next

    async def create_topics(self, topics: Sequence[NewTopic], validate_only: bool) -> list[CreatedTopic]:
        deadline = self._deadline(TIMEOUT_SECONDS)
        try:
            active = self._controller()
            outcomes, replies = await active.events.do(
                lambda: active.topics.create(topics, validate_only, self._random), TIMEOUT_SECONDS
            )
        except KafkaError as error:
            return [CreatedTopic(error.code, error.message, name=topic.name) for topic in topics]
        if validate_only:
            return outcomes
        await self._await_leaders(
            [_Awaited(each.name, each.num_partitions, each, each.topic_id) for each in outcomes],
            replies,
            deadline,
        )
        return outcomes

    async def _await_leaders(self, made: Sequence[_Awaited], replies: Replies, deadline: float) -> None:
        """Wait until the leaders have responded and this broker knows them; set the outcomes that time out."""
        waiting = [each for each in made if not each.outcome.error]
        await self._wait(replies, self._left(deadline))
        await self._wait_for(
            lambda: all(self._is_led(each.name, each.partitions, each.id) for each in waiting),
            self._left(deadline),
        )
        for each in waiting:
            if not self._is_led(each.name, each.partitions, each.id):
                each.outcome.error = ErrorCode.REQUEST_TIMED_OUT

    def _is_led(self, name: str, count: int, topic_id: bytes | None = None) -> bool:
        topic = self._metadata.topic(name)
        return (
            topic is not None
            and topic_id in (None, topic.topic_id)
            and len(topic.partitions) >= count
            and all(partition.leader >= 0 for partition in topic.partitions.values())
        )

    async def delete_topics(self, topics: Sequence[TopicToDelete]) -> list[DeletedTopic]:
        deadline = self._deadline(TIMEOUT_SECONDS)
        outcomes: list[DeletedTopic] = []
        waiting: list[asyncio.Future[None]] = []

        async def request(active: ActiveController) -> None:
            for wanted in topics:
                context = active.context
                found = (
                    context.topic_by_id(wanted.topic_id)
                    if wanted.name is None
                    else context.topics.get(wanted.name)
                )
                if found is None or found.name in context.deleting:
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if wanted.name is None:
                        unknown = ErrorCode.UNKNOWN_TOPIC_ID
                    outcomes.append(DeletedTopic(unknown, name=wanted.name, topic_id=wanted.topic_id))
                    continue
                waiting.append(await active.deletion.request(found.name))
                outcomes.append(DeletedTopic(name=found.name, topic_id=found.id or bytes(16)))

        try:
            active = self._controller()
            await active.events.do(lambda: request(active), TIMEOUT_SECONDS)
        except KafkaError as error:
            return [DeletedTopic(error.code, error.message, name=t.name, topic_id=t.topic_id) for t in topics]
        if waiting:
            with suppress(TimeoutError):
                async with self._clock.timeout(self._left(deadline)):
                    await asyncio.wait(waiting)
        gone = {outcome.name for outcome in outcomes if not outcome.error and outcome.name is not None}
        ids = {outcome.name: outcome.topic_id for outcome in outcomes}

        def forgotten(name: str) -> bool:
            known = self._metadata.topic(name)
            return known is None or known.topic_id != ids[name]

        if not await self._wait_for(lambda: all(map(forgotten, gone)), self._left(deadline)):
            for outcome in outcomes:
                if outcome.name in gone and not forgotten(outcome.name):
                    outcome.error = ErrorCode.REQUEST_TIMED_OUT
        return outcomes

    async def create_partitions(self, topics: Sequence[MorePartitions], validate_only: bool) -> list[Outcome]:
        deadline = self._deadline(TIMEOUT_SECONDS)
        try:
            active = self._controller()
            outcomes, replies = await active.events.do(
                lambda: active.topics.extend(topics, validate_only), TIMEOUT_SECONDS
            )
        except KafkaError as error:
            return [Outcome(error.code, error.message) for _ in topics]
        if not validate_only:
            made = [_Awaited(t.name, t.count, o, None) for t, o in zip(topics, outcomes, strict=True)]
            await self._await_leaders(made, replies, deadline)
        return outcomes

    async def ensure_topic(self, name: str) -> TopicInfo:
        found = self._metadata.topic(name)
        if found is not None:
            return found
        topic = new_topic_on_first_use(self._config, name)
        # Concurrent callers share one creation.
        creating = self._creating.get(name)
        if creating is None:
            creating = self._creating[name] = asyncio.ensure_future(self._create(topic))
            creating.add_done_callback(lambda task: self._created(name, task))
        return await asyncio.shield(creating)

    def _created(self, name: str, task: asyncio.Task[TopicInfo]) -> None:
        self._creating.pop(name, None)
        if not task.cancelled():
            task.exception()  # the callers that still wait have it; without any, asyncio would log it

    async def _create(self, topic: NewTopic) -> TopicInfo:
        name = topic.name
        deadline = self._deadline(ENSURE_SECONDS)
        while True:
            try:
                code, message = await self._ask_for(topic, self._left(deadline))
            except ConnectionError as error:
                code, message = ErrorCode.NOT_CONTROLLER, str(error)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                await self._wait_for(lambda: self._is_led(name, 1), self._left(deadline))
                code, message = ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leaders yet"
            found = self._metadata.topic(name)
            if found is not None:
                return found
            if code not in _AGAIN or self._left(deadline) <= _RETRY_SECONDS:
                raise KafkaError(code, message)
            await self._clock.sleep(_RETRY_SECONDS)

    async def _ask_for(self, topic: NewTopic, timeout: float) -> tuple[ErrorCode, str | None]:
        """Ask the controller to create a topic. Raises ConnectionError."""
        active = self._active()
        if active is not None:
            outcome = (await self.create_topics([topic], False))[0]
            return outcome.error, outcome.message
        link = await self._to_controller()
        version = link.version_of(ApiKey.CREATE_TOPICS)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    # Before version 4 no number means the default: send this broker's.
                    num_partitions=_or(topic.num_partitions, self._config.num_partitions, version),
                    replication_factor=_or(
                        topic.replication_factor, self._config.default_replication_factor, version
                    ),
                    configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
                )
            ],
            timeout_ms=int(timeout * 1000),
        )
        answer = await link.submit(request, timeout=timeout, version=version)
        result = answer.topics[0]
        return ErrorCode(result.error_code), result.error_message

    async def _read_configs(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        settings = await self._configs.read(*entity_of(kind, name))
        return await self._passwords.decrypted(settings) if kind is ResourceType.BROKER else settings

    async def _apply_configs(self, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
        stored = await self._passwords.encrypted(settings) if kind is ResourceType.BROKER else settings
        await self._configs.write(*entity_of(kind, name), stored)
        # The change comes back through the store. Wait, so that this broker's next answers include it.
        deadline = self._deadline(_APPLIED_SECONDS)
        while not self._is_applied(kind, name, settings) and self._left(deadline) > 0:
            await self._clock.sleep(_POLL_SECONDS)

    def _is_applied(self, kind: ResourceType, name: str, settings: Mapping[str, str]) -> bool:
        if kind is ResourceType.TOPIC:
            topic = self._metadata.topic(name)
            return topic is None or dict(topic.configs) == dict(settings)
        if kind is ResourceType.GROUP:
            return dict(self._metadata.group_configs.get(name, {})) == dict(settings)
        if kind is ResourceType.CLIENT_METRICS:
            return dict(self._metadata.client_metrics.get(name, {})) == dict(settings)
        return dict(self._config.dynamic_broker if name else self._config.dynamic_default) == dict(settings)

    def _controller(self) -> ActiveController:
        """Raises KafkaError(NOT_CONTROLLER) if this broker isn't the controller."""
        active = self._active()
        if active is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return active

    async def elect_leaders(
        self, partitions: Sequence[Partition] | None, *, unclean: bool, timeout: float
    ) -> dict[Partition, Outcome]:
        active = self._controller()
        replies = Replies()

        async def elect() -> dict[Partition, Outcome]:
            wanted = list(active.context.partitions()) if partitions is None else partitions
            return await active.leader_balancer.elect(wanted, unclean=unclean, replies=replies)

        outcomes = await active.events.do(elect, timeout)
        await self._wait(replies, _LEADERS_SECONDS)
        return outcomes

    async def alter_reassignments(
        self, wanted: Mapping[Partition, Sequence[int] | None], timeout: float
    ) -> dict[Partition, Outcome]:
        active = self._controller()

        async def alter() -> dict[Partition, Outcome]:
            outcomes: dict[Partition, Outcome] = {}
            async for partition, replicas in unhurried(wanted.items()):
                try:
                    await active.reassignments.begin(partition, replicas)
                    outcomes[partition] = Outcome()
                except KafkaError as error:
                    outcomes[partition] = Outcome(error.code, error.message)
            return outcomes

        return await active.events.do(alter, timeout)

    async def reassignments(self, timeout: float) -> dict[Partition, Assignment]:
        active = self._controller()

        async def current() -> dict[Partition, Assignment]:
            return active.reassignments.current()

        return await active.events.do(current, timeout)

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        active = self._controller()
        return await active.events.do(lambda: active.alter_partition.alter(request, version), _EVENT_SECONDS)

    async def controlled_shutdown(self, broker: int, broker_epoch: int) -> list[Partition]:
        active = self._controller()
        remaining, replies = await active.events.do(
            lambda: active.broker_changes.controlled_shutdown(broker, broker_epoch), _EVENT_SECONDS
        )
        await self._wait(replies, _LEADERS_SECONDS)
        return remaining

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdBlock:
        active = self._controller()
        return await active.events.do(
            lambda: active.allocate_producer_ids(broker, broker_epoch), _EVENT_SECONDS
        )

    async def _next_block(self) -> ProducerIdBlock:
        """Ask the controller for a block until there is one. Raises KafkaError."""
        deadline = self._deadline(ENSURE_SECONDS)
        while True:
            try:
                return await self._ask_for_block(self._left(deadline))
            except ConnectionError as error:
                failure = KafkaError(ErrorCode.NOT_CONTROLLER, str(error))
            except KafkaError as error:
                failure = error
            if self._left(deadline) <= _RETRY_SECONDS:
                raise failure
            await self._clock.sleep(_RETRY_SECONDS)

    async def _ask_for_block(self, timeout: float) -> ProducerIdBlock:
        """Raises ConnectionError, KafkaError."""
        broker, epoch = self._config.broker_id, self._broker_epoch()
        if self._active() is not None:
            return await self.allocate_producer_ids(broker, epoch)
        link = await self._to_controller()
        response: AllocateProducerIdsResponse = await link.submit(
            AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch),
            timeout=timeout,
            version=link.version_of(ApiKey.ALLOCATE_PRODUCER_IDS),
        )
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        first = response.producer_id_start
        return ProducerIdBlock(broker, first, first + response.producer_id_len - 1)

    async def _wait(self, replies: Replies, seconds: float) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await replies.wait()

    def _deadline(self, seconds: float) -> float:
        return self._clock.monotonic() + seconds

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.monotonic())


def _or(number: int, default: int, version: int) -> int:
    return default if number == -1 and version < _DEFAULTS_SINCE else number
