"""The controller of a standalone broker.

Every change goes to the store first and is durable there; then it is applied to logs and metadata. After a crash in
between, the next start brings logs and metadata in line with the store:

* a topic in the store without folders gets them;
* a folder whose topic isn't in the store is left alone, with a warning;
* a deletion that has begun (``/admin/delete_topics``) is finished.

Changes are made one at a time, in the order of the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from ottla_broker.config.broker import shown_settings
from ottla_broker.config.client_metrics import check_client_metrics_config
from ottla_broker.config.group_configs import check_group_config
from ottla_broker.config.topics import log_config
from ottla_broker.controller import topic_store
from ottla_broker.controller.api import (
    ZERO_ID,
    CreatedTopic,
    DeletedTopic,
    MorePartitions,
    NewTopic,
    Outcome,
    Partition,
    ResourceType,
    TopicToDelete,
)
from ottla_broker.controller.bootstrap import (
    become_controller,
    ensure_paths,
    register_broker,
    settle_cluster_id,
    warn_of_strays,
)
from ottla_broker.controller.config_admin import ConfigAdmin, entity_of, outcome_of
from ottla_broker.controller.new_topics import (
    PlannedTopic,
    new_topic_id,
    new_topic_on_first_use,
    plan_topics,
)
from ottla_broker.controller.producer_ids import ProducerIds, allocate_block
from ottla_broker.controller.stored_passwords import StoredPasswords
from ottla_broker.controller.validation import assignments_of, assignments_of_more, check_reassignment
from ottla_broker.events import get_logger
from ottla_broker.log.config import LogConfig
from ottla_broker.metadata.cache import MetadataCache, PartitionInfo, TopicInfo
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.store.api import Operation, Set, Store, StoreError
from ottla_broker.store.keys import (
    DEFAULT_ENTITY,
    OWN_PATHS,
    PERSISTENT_PATHS,
    Assignment,
    BadNodeError,
    ConfigNode,
    DeleteTopicNode,
    PartitionState,
    TopicNode,
    TopicPartitionStateNode,
    encode_uuid,
)
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.clock import Clock
    from ottla_broker.config import BrokerConfig, Endpoint
    from ottla_broker.log.manager import LogManager
    from ottla_broker.replica.manager import ReplicaManager

_log = get_logger()

# How many partitions to create, lead or remove before the event loop gets its turn.
_SLICE: Final = 16
# Partitions whose nodes are made before that.
_PORTION: Final = 1_000

_NO_PARTITION: Final = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")

TopicDeletedListener = Callable[[str, Sequence[int]], None]


@dataclass(eq=False)
class StandaloneController(ConfigAdmin):
    """See :class:`ottla_broker.controller.api.Controller`. Owned by the loop thread.

    Start it in three steps: :meth:`load` fills the metadata from the store, so that the logs can be loaded with their
    topics' configs; :meth:`start` leads the partitions; :meth:`register` stores this broker's addresses.

    Attributes:
        on_topic_deleted: called with a topic and its partitions after its deletion.
        on_broker_configs: called when dynamic configs of the broker have changed.
    """

    _config: BrokerConfig
    _store: Store
    _metadata: MetadataCache
    _replicas: ReplicaManager
    _logs: LogManager
    _clock: Clock
    _random: Random
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _passwords: StoredPasswords = field(init=False)
    _states: topic_store.StateCodec = field(default_factory=topic_store.StateCodec, init=False)
    _log_configs: dict[frozenset[tuple[str, str]], LogConfig] = field(default_factory=dict, init=False)
    _epoch: int = field(default=0, init=False)
    _unfinished: list[topic_store.StoredTopic] = field(default_factory=list, init=False)
    on_topic_deleted: list[TopicDeletedListener] = field(default_factory=list, init=False)
    on_broker_configs: list[Callable[[], None]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._passwords = StoredPasswords(self._config, self._random)
        self.next_producer_id = ProducerIds(
            lambda: allocate_block(self._store, self._config.broker_id, self._store.transaction)
        ).next

    async def load(self, cluster_id: str | None = None) -> None:
        """Read the store. ``cluster_id`` is the data folder's, if it has one.

        Raises StoreError, BadNodeError: the store can't be read; the message says what.
        """
        await ensure_paths(self._store, (*PERSISTENT_PATHS, *OWN_PATHS, "/cluster"))
        self._metadata.cluster_id = await settle_cluster_id(
            self._store,
            cluster_id,
            lambda: cluster_id or encode_uuid(new_topic_id(self._random)),
            "put back the meta.properties and the store that belong together",
        )
        self._metadata.controller_id = self._config.broker_id
        self._epoch = await become_controller(self._store, self._config.broker_id, self._clock.now_ms())
        default = await self._broker_configs(DEFAULT_ENTITY)
        own = await self._broker_configs(str(self._config.broker_id))
        self._config.apply_dynamic(default, own)
        for name in await self._store.children("/config/groups"):
            configs = await topic_store.read_configs(self._store, ConfigNode.GROUPS, name, check_group_config)
            self._metadata.group_configs[ConfigNode.group_of(name)] = configs
        for name in await self._store.children("/config/client-metrics"):
            configs = await topic_store.read_configs(
                self._store, ConfigNode.CLIENT_METRICS, name, check_client_metrics_config
            )
            self._metadata.put_client_metrics(ConfigNode.group_of(name), configs)
        doomed = set(await self._store.children(DeleteTopicNode.PARENT))
        for name in await self._store.children(TopicNode.PARENT):
            stored = await topic_store.read_topic(self._store, name, self._states)
            if name in doomed:
                self._unfinished.append(stored)
            else:
                self._metadata.put(self._info_of(stored))

    async def _broker_configs(self, entity: str) -> dict[str, str]:
        def check(name: str, text: str) -> None:
            self._config.check_dynamic({name: text})

        return await topic_store.read_configs(
            self._store, ConfigNode.BROKERS, entity, check, self._passwords.decrypted
        )

    async def start(self) -> None:
        """Bring the logs, which must be loaded, in line with the store, and lead all partitions.

        Raises StoreError: the store can't be written.
        """
        for stored in self._unfinished:
            _log.info("deletion finished", topic=stored.name)
            await self._remove(stored)
        self._unfinished.clear()
        await self._raise_epochs()
        led = [(topic, index) for topic in self._metadata.topics() for index in topic.partitions]
        async for topic, index in unhurried(led, _SLICE):
            self._lead(topic, index)
        warn_of_strays(self._logs, self._metadata)

    async def _raise_epochs(self) -> None:
        """Raise all leader epochs after an unclean stop, as an election does in Kafka.

        Records may be lost then, and their offsets be used again; the new epoch lets consumers find out (KIP-320).
        """
        if all(folder.was_clean for folder in self._logs.folders):
            return
        operations: list[Operation] = []
        raised: list[TopicInfo] = []
        for topic in self._metadata.topics():
            partitions = {
                index: PartitionInfo(index, self._config.broker_id, p.leader_epoch + 1, p.replicas, p.isr)
                for index, p in topic.partitions.items()
            }
            operations += [
                Set(TopicPartitionStateNode.path(topic.name, p.index), self._state_of(p.leader_epoch))
                for p in partitions.values()
            ]
            raised.append(self._replaced(topic, partitions=partitions))
        if operations:
            await self._store.transaction(operations)
        for topic in raised:
            self._metadata.put(topic)

    async def register(self, endpoints: Sequence[Endpoint]) -> None:
        """Store this broker's addresses, once the ports are known."""
        broker_id = self._config.broker_id
        self._metadata.brokers[broker_id] = await register_broker(
            self._store, broker_id, self._config.broker_rack, endpoints, self._clock.now_ms()
        )

    async def create_topics(self, topics: Sequence[NewTopic], validate_only: bool) -> list[CreatedTopic]:
        async with self._lock:
            return await self._create(topics, validate_only)

    async def _create(self, topics: Sequence[NewTopic], validate_only: bool) -> list[CreatedTopic]:
        names = {topic.name for topic in self._metadata.topics()}
        outcomes, planned = await plan_topics(
            topics,
            self._config,
            self._random,
            self._assign,
            known=names,
            # In the store, but not in use.
            doomed={
                topic.name
                for topic in topics
                if topic.name not in names and await self._store.exists(TopicNode.path(topic.name))
            },
            validate_only=validate_only,
        )
        if validate_only:
            return outcomes
        operations: list[Operation] = []
        made: dict[int, TopicInfo] = {}
        async for at, plan in unhurried(planned.items()):
            try:
                made[at] = await self._add_operations(plan, operations)
            except BadNodeError as error:
                outcomes[at] = CreatedTopic(ErrorCode.UNKNOWN_SERVER_ERROR, str(error), name=plan.name)
        if made:
            failures = await self._commit_creation(operations, list(made.values()))
            for at, info in made.items():
                if (failure := failures.get(info.name)) is not None:
                    outcomes[at] = CreatedTopic(failure.code, failure.message, name=info.name)
        return outcomes

    def _assign(self, topic: NewTopic) -> Mapping[int, Sequence[int]]:
        """The replicas of a new topic's partitions. Raises KafkaError."""
        config = self._config
        return assignments_of(
            topic, sorted(self._alive()), config.num_partitions, config.default_replication_factor
        )

    async def _add_operations(self, plan: PlannedTopic, operations: list[Operation]) -> TopicInfo:
        """Add the operations that store a new topic. Raises BadNodeError."""
        name = plan.name
        epoch = await topic_store.next_epoch(self._store, name)
        operations += topic_store.creation(name, plan.id, plan.assignments, plan.configs)
        state = self._state_of(epoch)
        indexes = iter(plan.assignments)
        while some := tuple(islice(indexes, _PORTION)):
            operations += topic_store.partition_creation(name, some, state)
            if len(some) == _PORTION:
                await asyncio.sleep(0)
        if len(plan.assignments) > _SLICE:
            await asyncio.sleep(0)
        partitions = {i: PartitionInfo(i, r[0], epoch, r, r) for i, r in plan.assignments.items()}
        return TopicInfo(name, plan.id, partitions, name in INTERNAL_TOPICS, plan.configs, plan.in_force)

    def _alive(self) -> set[int]:
        return set(self._metadata.brokers) | {self._config.broker_id}

    async def _commit_creation(
        self, operations: Sequence[Operation], made: Sequence[TopicInfo]
    ) -> dict[str, KafkaError]:
        """Store new topics, then lead and publish them. Returns the errors by topic."""
        try:
            await self._store.transaction(operations)
        except StoreError as error:
            failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return {topic.name: failure for topic in made}
        failures: dict[str, KafkaError] = {}
        for topic in made:
            try:
                await self._lead_new(topic, topic.partitions.values())
            except KafkaError as error:
                failures[topic.name] = error
                await self._undo_creation(topic)
            else:
                self._metadata.put(topic)
                _log.info("topic created", topic=topic.name, partitions=len(topic.partitions))
        return failures

    async def _undo_creation(self, topic: TopicInfo) -> None:
        """Remove a topic whose logs could not be created."""
        try:
            await self._remove(await topic_store.read_topic(self._store, topic.name, self._states))
        except (StoreError, KafkaError) as error:
            # The next start creates its folders, if it is still in the store. Clients can't see it until then.
            _log.error("topic partly created", topic=topic.name, reason=str(error))

    async def _lead_new(self, topic: TopicInfo, partitions: Iterable[PartitionInfo]) -> None:
        """Create and lead new partitions. Raises KafkaError."""
        async for partition in unhurried(partitions, _SLICE):
            self._replicas.become_leader(
                topic.name,
                partition.index,
                topic.topic_id,
                partition.leader_epoch,
                topic.log_config,
                is_new=True,
            )

    def _lead(self, topic: TopicInfo, index: int) -> None:
        """Lead a partition at start. If its log can't be created, it is offline and the broker goes on."""
        info = topic.partitions[index]
        try:
            self._replicas.become_leader(
                topic.name, index, topic.topic_id, info.leader_epoch, topic.log_config
            )
        except KafkaError as error:
            _log.error("partition offline", topic=topic.name, partition=index, reason=error.message)
            topic.partitions[index] = PartitionInfo(
                index, -1, info.leader_epoch, info.replicas, info.isr, offline=info.replicas
            )

    async def ensure_topic(self, name: str) -> TopicInfo:
        found = self._metadata.topic(name)
        if found is not None:
            return found
        topic = new_topic_on_first_use(self._config, name)
        topic.replication_factor = min(topic.replication_factor, len(self._alive()))
        outcome = (await self.create_topics([topic], validate_only=False))[0]
        found = self._metadata.topic(name)
        if found is None:
            code = (
                outcome.error if outcome.error is not ErrorCode.NONE else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            raise KafkaError(code, outcome.message)
        return found

    async def delete_topics(self, topics: Sequence[TopicToDelete]) -> list[DeletedTopic]:
        async with self._lock:
            return [await self._delete(topic) async for topic in unhurried(topics)]

    async def _delete(self, wanted: TopicToDelete) -> DeletedTopic:
        if wanted.name is None:
            info = self._metadata.topic_by_id(wanted.topic_id)
            if info is None:
                return DeletedTopic(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
        else:
            info = self._metadata.topic(wanted.name)
            if info is None:
                return DeletedTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=wanted.name)
        try:
            await self._store.create(DeleteTopicNode.path(info.name))
        except StoreError as error:
            return DeletedTopic(
                ErrorCode.KAFKA_STORAGE_ERROR, str(error), name=info.name, topic_id=info.topic_id
            )
        # From here on the deletion happens, now or at the next start.
        self._metadata.remove(info.name)
        try:
            await self._remove(await topic_store.read_topic(self._store, info.name, self._states))
        except (StoreError, KafkaError) as error:
            _log.error(
                "deletion not finished; the next start continues it", topic=info.name, reason=str(error)
            )
        else:
            _log.info("topic deleted", topic=info.name)
        for listener in self.on_topic_deleted:
            listener(info.name, list(info.partitions))
        return DeletedTopic(name=info.name, topic_id=info.topic_id)

    async def _remove(self, stored: topic_store.StoredTopic) -> None:
        """Stop a topic's partitions, remove their files, and remove it from the store.

        Raises KafkaError, StoreError.
        """
        async for index in unhurried(stored.assignments, _SLICE):
            self._replicas.stop(stored.name, index, delete=True)
        operations = await topic_store.removal(self._store, stored)
        # Its partitions' states may take megabytes.
        del stored
        await self._store.transaction(operations)

    async def create_partitions(self, topics: Sequence[MorePartitions], validate_only: bool) -> list[Outcome]:
        async with self._lock:
            return [await outcome_of(self._extend(each, validate_only)) async for each in unhurried(topics)]

    async def _extend(self, wanted: MorePartitions, validate_only: bool) -> None:
        """Raises KafkaError."""
        info = self._known(wanted.name)
        first = info.partitions[0]
        given = assignments_of_more(wanted, len(info.partitions), len(first.replicas), sorted(self._alive()))
        if validate_only:
            return
        # New partitions start in the topic's first epoch: they had no log that a higher epoch would fence.
        epoch = min(p.leader_epoch for p in info.partitions.values())
        added = {i: PartitionInfo(i, r[0], epoch, r, r) for i, r in given.items()}
        partitions = {**info.partitions, **added}
        assignments = {index: p.replicas for index, p in partitions.items()}
        state = self._state_of(epoch)
        try:
            await self._store.transaction(
                [
                    topic_store.assignment_change(info.name, info.topic_id, assignments),
                    *topic_store.partition_creation(info.name, given, state),
                ]
            )
        except StoreError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        grown = self._replaced(info, partitions=partitions)
        try:
            await self._lead_new(grown, added.values())
        except KafkaError as error:
            # The partitions are in the store and stay; those without a log are offline until the next start.
            _log.error("partitions offline", topic=info.name, reason=error.message)
            for index, p in added.items():
                if self._replicas.partition(info.name, index) is None:
                    partitions[index] = PartitionInfo(index, -1, epoch, p.replicas, p.isr, p.replicas)
        self._metadata.put(grown)
        _log.info("partitions created", topic=info.name, partitions=len(grown.partitions))

    async def _read_configs(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        if kind is ResourceType.TOPIC:
            return self._known(name).configs
        if kind is ResourceType.GROUP:
            return self._metadata.group_configs.get(name, {})
        if kind is ResourceType.CLIENT_METRICS:
            return self._metadata.client_metrics.get(name, {})
        return self._config.dynamic_broker if name else self._config.dynamic_default

    def _known(self, name: str) -> TopicInfo:
        info = self._metadata.topic(name)
        if info is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return info

    async def _apply_configs(self, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
        stored = await self._passwords.encrypted(settings) if kind is ResourceType.BROKER else settings
        entity = entity_of(kind, name)
        exists = await self._store.exists(ConfigNode.path(*entity))
        await self._store.transaction([topic_store.config_change(exists, *entity, stored)])
        if kind is ResourceType.TOPIC:
            in_force = self._log_config(settings)
            self._metadata.put(self._replaced(self._known(name), configs=settings, in_force=in_force))
            self._replicas.update_config(name, in_force)
            _log.info("topic configured", topic=name, configs=dict(settings))
            return
        if kind is ResourceType.GROUP:
            self._metadata.group_configs[name] = dict(settings)
            _log.info("group configured", group=name, configs=dict(settings))
            return
        if kind is ResourceType.CLIENT_METRICS:
            self._metadata.put_client_metrics(name, settings)
            _log.info("client metrics configured", subscription=name, configs=dict(settings))
            return
        config = self._config
        if name:
            config.apply_dynamic(config.dynamic_default, settings)
        else:
            config.apply_dynamic(settings, config.dynamic_broker)
        self._refresh_topics()
        _log.info("broker configured", scope=name or "all brokers", configs=shown_settings(settings))
        for listener in self.on_broker_configs:
            listener()

    def _refresh_topics(self) -> None:
        """Apply changed defaults of the broker to its topics."""
        self._log_configs.clear()
        for topic in list(self._metadata.topics()):
            in_force = self._log_config(topic.configs)
            if in_force != topic.log_config:
                self._metadata.put(self._replaced(topic, in_force=in_force))
                self._replicas.update_config(topic.name, in_force)

    async def elect_leaders(
        self, partitions: Sequence[Partition] | None, *, unclean: bool, timeout: float
    ) -> dict[Partition, Outcome]:
        if partitions is None:
            partitions = [
                (topic.name, index) for topic in self._metadata.topics() for index in topic.partitions
            ]
        return {partition: self._elect(partition, unclean) for partition in partitions}

    def _elect(self, partition: Partition, unclean: bool) -> Outcome:
        info = self._info(partition)
        if info is None:
            return _NO_PARTITION
        if info.leader >= 0:
            return Outcome(ErrorCode.ELECTION_NOT_NEEDED)
        code = (
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        )
        return Outcome(code, f"The log of partition {partition[0]}-{partition[1]} is offline.")

    async def alter_reassignments(
        self, wanted: Mapping[Partition, Sequence[int] | None], timeout: float
    ) -> dict[Partition, Outcome]:
        return {partition: self._reassign(partition, replicas) for partition, replicas in wanted.items()}

    def _reassign(self, partition: Partition, replicas: Sequence[int] | None) -> Outcome:
        if self._info(partition) is None:
            return _NO_PARTITION
        if replicas is None:
            return Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        try:
            check_reassignment(replicas, (), self._alive())
        except KafkaError as error:
            return Outcome(error.code, error.message)
        return Outcome()

    def _info(self, partition: Partition) -> PartitionInfo | None:
        topic = self._metadata.topic(partition[0])
        return None if topic is None else topic.partitions.get(partition[1])

    async def reassignments(self, timeout: float) -> dict[Partition, Assignment]:
        return {}

    def _state_of(self, leader_epoch: int) -> bytes:
        broker_id = self._config.broker_id
        return self._states.encode(PartitionState(broker_id, leader_epoch, [broker_id], self._epoch))

    def _info_of(self, stored: topic_store.StoredTopic) -> TopicInfo:
        broker_id = self._config.broker_id
        partitions = {}
        for index, assignment in stored.assignments.items():
            state = stored.states.get(index)
            epoch = state.leader_epoch if state is not None else 0
            isr = state.isr if state is not None else assignment.replicas
            partitions[index] = PartitionInfo(index, broker_id, epoch, assignment.replicas, isr)
        return TopicInfo(
            stored.name,
            stored.topic_id or ZERO_ID,
            partitions,
            stored.name in INTERNAL_TOPICS,
            stored.configs,
            self._log_config(stored.configs),
        )

    def _log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """The config in force for a topic; equal settings share one object."""
        key = frozenset(configs.items())
        found = self._log_configs.get(key)
        if found is None:
            found = self._log_configs[key] = log_config(self._config, configs)
        return found

    @staticmethod
    def _replaced(
        topic: TopicInfo,
        partitions: dict[int, PartitionInfo] | None = None,
        configs: Mapping[str, str] | None = None,
        in_force: LogConfig | None = None,
    ) -> TopicInfo:
        """A copy of the topic with some values replaced, and without the cached responses of the old one."""
        return TopicInfo(
            topic.name,
            topic.topic_id,
            topic.partitions if partitions is None else partitions,
            topic.internal,
            topic.configs if configs is None else configs,
            topic.log_config if in_force is None else in_force,
        )
