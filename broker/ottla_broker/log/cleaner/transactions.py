"""Tells which batches belong to aborted transactions, and when a transaction's marker may be removed.

The cleaner walks the log in offset order and passes every batch to this object. Records of an aborted transaction are
removed at once, whatever their keys. A marker stays while its transaction has a batch in the log; after that it waits
for a delete horizon of its own, like a tombstone, so that a reader of the records also learns their outcome. Source:
CleanedTransactionMetadata in Kafka's LogCleaner.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.log.txn_index import AbortedTransaction
from ottla_protocol.records.batch import BatchHeader
from ottla_protocol.records.control import ABORT, COMMIT, control_type


class CleanedTransactions:
    """The state of the transactions while one thread walks over a log; ``retained`` is its output."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """``aborted``: the transactions of the stretch to be cleaned, in any order."""
        self._coming = sorted(set(aborted), key=lambda each: each.first_offset, reverse=True)
        # By producer id, with whether a batch of the transaction was found.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()
        # Aborted transactions whose markers stay: the entries of the cleaned segment's transaction index.
        self.retained: list[AbortedTransaction] = []

    def on_data(self, header: BatchHeader) -> bool:
        """Process a batch of records; True when it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._aborted.get(header.producer_id)
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (ongoing[0], True)
        return True

    def on_control(self, header: BatchHeader, key: bytes | None) -> bool:
        """Process a control batch; True when it may be removed. ``key``: its record's, None if it was emptied."""
        self._begin_up_to(header.last_offset)
        if key is None:
            return True
        kind = control_type(key)
        if kind == ABORT:
            transaction, met = self._aborted.pop(header.producer_id, (None, False))
            if transaction is not None and met:
                self.retained.append(transaction)
                return False
            return True
        if kind == COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False
            return True
        return False

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[-1].first_offset <= offset:
            transaction = coming.pop()
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
