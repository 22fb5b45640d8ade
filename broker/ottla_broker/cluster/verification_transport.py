"""Asks other brokers, as transaction coordinators, to verify transactions or to add partitions to them.

Both are AddPartitionsToTxn between brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerError, Peers, Purpose
from ottla_broker.replica.transaction_verifier import (
    TIMEOUT_SECONDS,
    Answers,
    Verdicts,
    Verification,
    for_producers,
)
from ottla_broker.tasks import Tasks
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, error_code
from ottla_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_log = get_logger()

_VERIFIES_SINCE: Final = 4


class VerificationTransport:
    """Owned by the loop thread; one task per request under way, at most one for each broker."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._tasks = Tasks()

    def __call__(
        self, broker_id: int, verifications: Sequence[Verification], answered: Callable[[Answers], None]
    ) -> None:
        """See :data:`ottla_broker.replica.transaction_verifier.Ask`."""
        self._tasks.start(self._send(broker_id, verifications, answered))

    async def _send(
        self, broker_id: int, verifications: Sequence[Verification], answered: Callable[[Answers], None]
    ) -> None:
        answers: Answers = ErrorCode.NETWORK_EXCEPTION
        try:
            answers = await self._ask(broker_id, verifications)
        except Exception as error:
            # Without an answer, what is asked of this coordinator from then on would wait forever.
            _log.error("transactions could not be verified", broker=broker_id, exc_info=error)
        answered(answers)

    async def _ask(self, broker_id: int, verifications: Sequence[Verification]) -> Answers:
        try:
            connection = await self._peers.connection(broker_id, Purpose.VERIFICATION, TIMEOUT_SECONDS)
            if connection.version_of(ApiKey.ADD_PARTITIONS_TO_TXN) < _VERIFIES_SINCE:
                _log.warning("transactions not verified: the coordinator is too old", broker=broker_id)
                return None
            response = await connection.submit(request_of(verifications), timeout=TIMEOUT_SECONDS)
        except PeerError as error:
            _log.info(
                "transactions not verified",
                broker=broker_id,
                transactions=len(verifications),
                reason=str(error),
            )
            return ErrorCode.NETWORK_EXCEPTION
        return answers_of(verifications, response)

    async def close(self) -> None:
        """Drop the requests under way."""
        await self._tasks.close()


def request_of(verifications: Sequence[Verification]) -> AddPartitionsToTxnRequest:
    """The request about transactions, each with an id of its own."""
    transactions = []
    for each in verifications:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, index in each.partitions:
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(index)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=not each.adds,
                topics=list(topics.values()),
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def answers_of(verifications: Sequence[Verification], response: AddPartitionsToTxnResponse) -> Answers:
    """The verdicts of a response; a transaction that it leaves out is not verified."""
    code = error_code(response.error_code)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # Clients can't do anything about that: what they need to know is that nothing was verified.
        return ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE:
        return code
    found: dict[str, Verdicts] = {
        result.transactional_id: {
            (topic.name, each.partition_index): for_producers(error_code(each.partition_error_code))
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }
    return [
        {
            key: verdict
            for key in each.partitions
            if (verdict := found.get(each.transactional_id, {}).get(key, ErrorCode.UNKNOWN_SERVER_ERROR))
            is not ErrorCode.NONE
        }
        for each in verifications
    ]
