"""A broker's coordinators: of groups, share groups and transactions; and what leaders need for transactions.

The coordinators are built when they are first needed: see :mod:`ottla_broker.coordinator.on_demand`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ottla_broker.coordinator.old_consumers import OldConsumers
from ottla_broker.coordinator.on_demand import GROUP_MODULES, TRANSACTION_MODULES, OnDemand
from ottla_broker.coordinator_environment import CoordinatorEnvironment
from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla_broker.replica.transaction_verifier import TransactionVerifier
from ottla_broker.replica.txn_markers import TxnMarkers
from ottla_broker.tasks import Step, undo

if TYPE_CHECKING:
    from ottla_broker.api_parts.share_services import ShareServices
    from ottla_broker.coordinator.group.coordinator import GroupCoordinator
    from ottla_broker.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla_broker.coordinator.transaction.markers import DeliverMarkers
    from ottla_broker.coordinator.zookeeper_groups import ZooKeeperGroups
    from ottla_broker.group_coordinators import Groups
    from ottla_broker.replica.transaction_verifier import Verification
    from ottla_broker.store.api import Store


class Coordinators:
    """Owned by the loop thread. :meth:`start` after the controller, :meth:`stop` before the listeners close.

    Attributes:
        are_needed: whether they are built with the start.
        txn_markers, transaction_verifier: what leaders need for transactions.
    """

    def __init__(self, environment: CoordinatorEnvironment, store: Store, *, are_needed: bool) -> None:
        self.are_needed = are_needed
        self._environment = environment
        self._groups = OnDemand((OFFSETS_TOPIC, SHARE_STATE_TOPIC), GROUP_MODULES, self._make_groups)
        self._transactions = OnDemand((TRANSACTION_TOPIC,), TRANSACTION_MODULES, self._make_transactions)
        self._old_consumers = OldConsumers(store, environment.clock, self._holder)
        self.txn_markers = TxnMarkers(environment.replicas, environment.clock, self._complete_transaction)
        member = environment.member
        self.transaction_verifier = TransactionVerifier(
            environment.config.broker_id,
            environment.clock,
            self._verify_transaction,
            self._transaction_coordinator,
            None if member is None else member.verification_transport(),
        )

    async def start(
        self, on_topic_deleted: list[Callable[[str, Sequence[int]], None]], stopping: list[Step]
    ) -> None:
        """Coordinate what this broker is to; ``on_topic_deleted`` takes a callback. Raises StoreError."""
        on_topic_deleted.append(self._partitions_deleted)
        self._start(self._groups, stopping)
        # Groups are refused whose consumers coordinate elsewhere.
        stopping.append(self._old_consumers.close)
        await self._old_consumers.start()
        self._start(self._transactions, stopping)

    def _start(self, demand: OnDemand[Any], stopping: list[Step]) -> None:
        self._environment.replicas.listeners.append(demand)
        stopping.append(partial(undo, demand.stopping))
        stopping.append(demand.close)
        if self.are_needed:
            demand.get()

    async def stop(self) -> None:
        """Answer the requests that wait, and coordinate nothing from now on."""
        await self._old_consumers.close()
        await self._groups.close()
        await self._transactions.close()
        groups, transactions = self._groups.made, self._transactions.made
        if groups is not None:
            groups.coordinator.stop()
        if transactions is not None:
            transactions.stop()
        if groups is not None and groups.shares is not None:
            groups.shares.partitions.close()

    async def load(self, groups: bool) -> None:
        """Build the coordinator of transactions, and those of groups if asked, without holding the event loop long."""
        if groups:
            await self._groups.load()
        await self._transactions.load()

    # Groups

    @cached_property
    def zookeeper_groups(self) -> ZooKeeperGroups:
        """The groups whose consumers coordinate in ZooKeeper."""
        from ottla_broker.coordinator.zookeeper_groups import ZooKeeperGroups

        return ZooKeeperGroups(self._old_consumers)

    @property
    def has_groups(self) -> bool:
        """Whether the coordinators of groups have been built."""
        return self._groups.made is not None

    async def load_groups(self) -> None:
        """Build the coordinators of groups without holding the event loop for long."""
        await self._groups.load()

    @property
    def groups(self) -> GroupCoordinator:
        """The group coordinator, which is built if this is the first use."""
        return self._groups.get().coordinator

    @property
    def shares(self) -> ShareServices | None:
        """The services for share groups' records, built if this is the first use; None: they aren't served."""
        return self._groups.get().shares if self._environment.config.group_share_enable else None

    def group_coordinator(self, group_id: str) -> int | None:
        """The broker that coordinates a group, as :meth:`CoordinatorEnvironment.leader_of`."""
        return self._environment.leader_of(OFFSETS_TOPIC, self.groups.partition_for(group_id))

    def _make_groups(self) -> Groups:
        # Imported here because most starts need no coordinators: see on_demand.py.
        from ottla_broker.group_coordinators import make_groups

        return make_groups(self._environment, self._groups, self._old_consumers)

    def _holder(self, group_id: str) -> str | None:
        made = self._groups.made
        return None if made is None else made.coordinator.admission.holder(group_id)

    def _partitions_deleted(self, topic: str, partitions: Sequence[int]) -> None:
        if self._groups.is_needed:
            self._groups.get().on_partitions_deleted(topic, partitions)

    # Transactions

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transaction coordinator, which is built if this is the first use."""
        return self._transactions.get()

    def _make_transactions(self) -> TransactionCoordinator:
        # Imported here because most starts need no coordinators: see on_demand.py.
        from ottla_broker.coordinator.transaction.coordinator import TransactionCoordinator
        from ottla_broker.coordinator.transaction.local_delivery import LocalDelivery
        from ottla_broker.coordinator.transaction.producer_id_source import ProducerIdSource
        from ottla_broker.coordinator.transaction.settings import TransactionSettings

        environment, demand = self._environment, self._transactions
        settings = TransactionSettings.from_config(environment.config)
        producer_ids = ProducerIdSource(environment.controller.next_producer_id)
        here = LocalDelivery(environment.clock, self.txn_markers.write)
        deliver: DeliverMarkers = here
        if environment.member is not None:
            deliver = environment.member.marker_transport(self.txn_markers)
        made = TransactionCoordinator(
            settings,
            environment.clock,
            partial(environment.partitions_of, TRANSACTION_TOPIC, settings.topic_partitions),
            producer_ids,
            environment.leader_of,
            deliver,
            here.flush,
        )
        demand.listeners.append(made)
        demand.stopping.append(producer_ids.close)
        if not demand.is_closed:
            made.start()
            demand.stopping.append(made.stop)
        return made

    def _complete_transaction(
        self, partition_indexes: Iterable[int], producer_id: int, committed: bool
    ) -> None:
        # A broker that leads partitions of __consumer_offsets has a group coordinator.
        if self._groups.is_needed:
            self.groups.complete_transaction(partition_indexes, producer_id, committed)

    def _transaction_coordinator(self, transactional_id: str) -> int | None:
        """The broker that coordinates a transactional id; -1 while that isn't known."""
        if self._transactions.made is None:
            # A produce request has to be answered at once: its producer asks again.
            self._transactions.want()
            return NO_LEADER
        partition = self.transactions.partition_for(transactional_id)
        return self._environment.leader_of(TRANSACTION_TOPIC, partition)

    def _verify_transaction(
        self, asked: Verification, answered: Callable[[int, Collection[tuple[str, int]]], None]
    ) -> None:
        from ottla_broker.coordinator.transaction.metadata import Producer

        transactional_id, partitions = asked.transactional_id, asked.partitions
        producer = Producer(asked.producer_id, asked.producer_epoch)
        if asked.adds:
            self.transactions.add_for_leader(
                transactional_id, producer, partitions, lambda error: answered(error, ())
            )
        else:
            answered(*self.transactions.verify_partitions(transactional_id, producer, partitions))
