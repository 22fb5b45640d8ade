"""Admin's calls for transactions: list, describe, fence and abort them, and find those that hang (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from time import time

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from ottla_protocol.messages.list_transactions import ListTransactionsRequest
from ottla_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla_protocol.printable import shown_name

from ..cluster import CoordinatorType
from ..deadline import Deadline
from ..errors import BrokerError, ClientError, ConfigurationError, UnsupportedApiError
from ..requests.driver import Node, Outcomes, ToCoordinators, ToLeaders
from ..requests.outcomes import error_of, outcome_of
from ..requests.transactions import init_request
from ..types import ProducerIdAndEpoch, TopicPartition
from .arguments import listed
from .offsets import OffsetCalls
from .results import PartialError
from .values import HangingTransaction, TransactionDescription, TransactionListing

DURATION_SINCE = 1
"""ListTransactions selects by age from this version on (KIP-994)."""
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
_NO_TRANSACTION = "no producer has used this transactional id, or not for transactional.id.expiration.ms"


class TransactionCalls(OffsetCalls):
    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_for_ms: int | None = None,
        timeout: float | None = None,
    ) -> dict[str, TransactionListing]:
        """The transactional ids of the cluster, with their state and producer id (from Kafka 3.0 on).

        ``states`` (``Ongoing``, ``CompleteCommit``, …), ``producer_ids`` and ``open_for_ms`` select some; the last one
        gives transactions that have been open for longer (from Kafka 3.8 on). Raises ConfigurationError for an unknown
        state; BrokerError; PartialError by broker if some brokers fail, whose transactional ids are missing then.
        """
        wanted = listed(states, str)
        duration = -1
        if open_for_ms is not None:
            duration = open_for_ms
            wanted = wanted or list(
                _OPEN
            )  # brokers also count from the begin of a transaction that has ended

        async def ask(
            node: Node, its: list[int], deadline: Deadline
        ) -> Outcomes[int, list[TransactionListing]]:
            version = await self._version(node, ApiKey.LIST_TRANSACTIONS, deadline)
            if open_for_ms is not None and version < DURATION_SINCE:
                raise UnsupportedApiError(
                    f"broker {node} is too old to list transactions by their age (before Kafka 3.8)"
                )
            request = ListTransactionsRequest(
                state_filters=wanted, producer_id_filters=list(producer_ids), duration_filter=duration
            )
            answer = await self._call(node, request, deadline, version)
            if answer.unknown_state_filters:
                raise ConfigurationError(
                    f"a transaction has no state {', '.join(map(repr, answer.unknown_state_filters))}"
                )
            listings = [
                TransactionListing(
                    each.transactional_id, each.transaction_state, each.producer_id, coordinator=its[0]
                )
                for each in answer.transaction_states
            ]
            return {its[0]: outcome_of(answer.error_code, listings, f"broker {node}")}

        found = await self._ask_nodes("list transactions", None, ask, timeout)
        listings = {each.transactional_id: each for its in found.values() for each in its}
        return dict(sorted(listings.items()))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Transactional ids with the state of their transaction and its partitions (from Kafka 3.0 on).

        Raises BrokerError, with TRANSACTIONAL_ID_NOT_FOUND for an unknown one; PartialError for several.
        """

        async def ask(
            node: Node, some: list[str], deadline: Deadline
        ) -> Outcomes[str, TransactionDescription]:
            answer = await self._call(node, DescribeTransactionsRequest(transactional_ids=some), deadline)
            return {each.transactional_id: _described(each, node) for each in answer.transaction_states}

        return await self._ask_each(
            "describe transactions",
            _ids(transactional_ids),
            ToCoordinators(self._cluster, CoordinatorType.TRANSACTION),
            ask,
            timeout,
        )

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """Abort what the producers of these ids have open, and refuse their requests from now on (KIP-664).

        A producer that is still running gets ProducerFencedError. Returns the id and epoch that a next producer
        follows. Raises BrokerError; PartialError for several.
        """

        async def ask(node: Node, some: list[str], deadline: Deadline) -> Outcomes[str, ProducerIdAndEpoch]:
            outcomes: dict[str, ProducerIdAndEpoch | ClientError] = {}
            for name in some:
                try:
                    request = init_request(name, self._broker_ms(deadline), None)
                    answer = await self._call(node, request, deadline)
                except ClientError as error:
                    outcomes[name] = error
                    continue
                fenced = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
                outcomes[name] = outcome_of(answer.error_code, fenced, _id(name))
            return outcomes

        return await self._ask_each(
            "fence producers",
            _ids(transactional_ids),
            ToCoordinators(self._cluster, CoordinatorType.TRANSACTION),
            ask,
            timeout,
        )

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timeout: float | None = None,
    ) -> None:
        """End a hanging transaction in one partition with an abort marker; its coordinator knows nothing of it.

        ``describe_producers`` and ``find_hanging_transactions`` give the numbers. Aborting a transaction that isn't
        hanging breaks it up: its other partitions may be committed. Raises BrokerError, with INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if the transaction has ended or another one has begun.
        """
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        )

        async def ask(
            node: Node, some: list[TopicPartition], deadline: Deadline
        ) -> Outcomes[TopicPartition, None]:
            answer = await self._call(node, WriteTxnMarkersRequest(markers=[marker]), deadline)
            return {
                TopicPartition(topic.name, each.partition_index): outcome_of(
                    each.error_code, None, f"partition {partition}, producer id {producer_id}"
                )
                for its in answer.markers
                for topic in its.topics
                for each in topic.partitions
            }

        route = ToLeaders(self._cluster)
        await self._ask_each("abort a transaction", [partition], route, ask, timeout)

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        max_timeout_ms: int = 900_000,
        timeout: float | None = None,
    ) -> list[HangingTransaction]:
        """Open transactions that no coordinator will end: they hold back the last stable offset of their partition.

        A transaction counts if its producer has been silent for ``max_timeout_ms``, which should be at least the
        brokers' transaction.max.timeout.ms, and its coordinator has no open transaction with the partition. Raises
        UnknownTopicError, BrokerError; PartialError for several partitions.
        """
        deadline = self._deadline(timeout)
        found = await self.describe_producers(partitions, timeout=deadline.left())
        before = time() * 1000 - max_timeout_ms
        silent = [
            HangingTransaction(partition, producer)
            for partition, producers in found.items()
            for producer in producers
            if producer.transaction_start_offset is not None and producer.last_timestamp < before
        ]
        if not silent:
            return []
        ids = {each.producer.producer_id for each in silent}
        listings = await self.list_transactions(producer_ids=sorted(ids), timeout=deadline.left())
        names = {each.producer_id: name for name, each in listings.items()}
        running = await self._open_partitions(names.values(), deadline)
        return [
            HangingTransaction(each.partition, each.producer, name)
            for each in silent
            for name in [names.get(each.producer.producer_id)]
            if name is None or each.partition not in running.get(name, ())
        ]

    async def _open_partitions(
        self, transactional_ids: Collection[str], deadline: Deadline
    ) -> dict[str, frozenset[TopicPartition]]:
        """The partitions of open transactions; without ids that have expired meanwhile."""
        try:
            described = await self.describe_transactions(transactional_ids, timeout=deadline.left())
        except PartialError as error:
            if not all(map(_is_unknown, error.errors.values())):
                raise
            described = error.results
        except BrokerError as error:
            if not _is_unknown(error):
                raise
            described = {}
        return {name: each.partitions for name, each in described.items()}


def _is_unknown(error: ClientError) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def _id(name: str) -> str:
    return f"transactional id {shown_name(name)}"


def _ids(given: Iterable[str]) -> list[str]:
    """Transactional ids. Raises ConfigurationError for one that no producer can have."""
    names = listed(given, str)
    if not all(names):
        raise ConfigurationError("a transactional id is ''; it must be a name")
    return names


def _described(state: TransactionState, node: Node) -> TransactionDescription | ClientError:
    if state.error_code:
        known = {int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND): _NO_TRANSACTION}
        return error_of(state.error_code, _id(state.transactional_id), known.get(state.error_code))
    assert node is not None, "the coordinator is known"
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
        frozenset(TopicPartition(topic.topic, each) for topic in state.topics for each in topic.partitions),
        node,
    )
