"""Delivers transaction markers to the brokers that lead the partitions: this one, or another by WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerError, Peers, Purpose
from ottla_broker.replica.txn_markers import TIMEOUT_MS, MarkerErrors, TxnMarker
from ottla_broker.tasks import Tasks
from ottla_protocol.errors import error_code
from ottla_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla_broker.coordinator.transaction.markers import Written
    from ottla_broker.replica.txn_markers import TxnMarkers

_log = get_logger()

_TIMEOUT_SECONDS: Final = TIMEOUT_MS / 1000 + 5.0
"""A little longer than the broker waits for its replicas."""


class MarkerTransport:
    """Owned by the loop thread; one task per request under way, at most one for each broker."""

    def __init__(self, broker_id: int, local: TxnMarkers, peers: Peers) -> None:
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._tasks = Tasks()

    def __call__(self, broker_id: int, markers: Sequence[TxnMarker], written: Written) -> None:
        """See :data:`ottla_broker.coordinator.transaction.markers.DeliverMarkers`."""
        if broker_id == self._broker_id:
            self._local.write(markers, written)
            return
        self._tasks.start(self._send(broker_id, markers, written))

    async def _send(self, broker_id: int, markers: Sequence[TxnMarker], written: Written) -> None:
        try:
            response = await self._peers.request(
                broker_id, request_of(markers), timeout=_TIMEOUT_SECONDS, purpose=Purpose.MARKERS
            )
        except PeerError as error:
            _log.info("markers not delivered", broker=broker_id, markers=len(markers), reason=str(error))
            written(None)
        else:
            written(errors_of(markers, response))

    async def close(self) -> None:
        """Drop the requests under way: the transactions' next coordinator sends their markers again."""
        await self._tasks.close()


def request_of(markers: Sequence[TxnMarker]) -> WriteTxnMarkersRequest:
    """The request that delivers ``markers``."""
    made = []
    for marker in markers:
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for name, index in marker.partitions:
            topics.setdefault(name, WritableTxnMarkerTopic(name=name)).partition_indexes.append(index)
        made.append(
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.commit,
                topics=list(topics.values()),
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        )
    return WriteTxnMarkersRequest(markers=made)


def errors_of(markers: Sequence[TxnMarker], response: WriteTxnMarkersResponse) -> list[MarkerErrors]:
    """The errors of each marker, as far as the response has them; an unknown code is UNKNOWN_SERVER_ERROR."""
    by_producer: dict[int, MarkerErrors] = {}
    for marker in response.markers:
        found = by_producer.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for result in topic.partitions:
                found[topic.name, result.partition_index] = error_code(result.error_code)
    return [by_producer.get(marker.producer_id, {}) for marker in markers]
