"""One transaction as a block of code."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Self

from ..errors import ClientError, TransactionAbortedError, TransactionStateError
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

_log = logging.getLogger("ottla_client.producer")

OffsetsLike = Mapping[TopicPartition, int | OffsetAndMetadata]


class GroupConsumer(Protocol):
    """A consumer whose offsets a transaction commits: ``ottla_client.Consumer``."""

    def transaction_offsets(
        self,
    ) -> tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]: ...


class TransactionCalls(Protocol):
    """The calls of a Producer that a transaction is made of."""

    async def begin_transaction(self) -> None: ...

    async def send_offsets_to_transaction(
        self, offsets: OffsetsLike | None, group: GroupConsumer | ConsumerGroupMetadata | str
    ) -> None: ...

    async def commit_transaction(self, timeout: float | None = None) -> None: ...

    async def abort_transaction(self, timeout: float | None = None) -> None: ...


class Transaction:
    """A transaction of a producer: its records and offsets count together or not at all.

    ::

        async with producer.transaction() as transaction:
            await producer.send("out", b"...")
            await transaction.send_offsets(consumer)

    The end of the block commits; an exception in it aborts.
    """

    def __init__(self, producer: TransactionCalls) -> None:
        self._producer = producer
        self._open = False
        self._block = "async with"
        """What errors say opens it: ``with`` for code without asyncio."""

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._open:
            return
        if error is None:
            try:
                await self.commit()
            except TransactionAbortedError:
                await self._abort_after_error()
                raise
        else:
            await self._abort_after_error()

    async def _abort_after_error(self) -> None:
        """Abort; a failure is only logged, because the error that ended the block is raised."""
        try:
            await self.abort()
        except ClientError as failed:
            _log.warning("%s", failed)

    async def send_offsets(
        self, group: GroupConsumer | ConsumerGroupMetadata | str, offsets: OffsetsLike | None = None
    ) -> None:
        """Commit a group's offsets with the transaction: those of the next records to read.

        ``group`` is a Consumer, its ``group_metadata()``, or a group's id. Without ``offsets`` they are those of all
        records that the consumer has handed out. An id alone doesn't protect against a rebalance in which another
        member gets the partitions.

        Raises CommitFailedError if the group has moved on, and other GroupErrors: the transaction is aborted then.
        Raises ConfigurationError for a consumer with ``enable_auto_commit``.
        """
        self._check_open()
        await self._producer.send_offsets_to_transaction(offsets, group)

    async def commit(self, timeout: float | None = None) -> None:
        """Commit before the end of the block; see ``Producer.commit_transaction``."""
        self._check_open()
        await self._producer.commit_transaction(timeout)
        self._open = False

    async def abort(self, timeout: float | None = None) -> None:
        """Abort without an exception; see ``Producer.abort_transaction``."""
        self._check_open()
        await self._producer.abort_transaction(timeout)
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise TransactionStateError(
                f'this transaction is not open: use "{self._block} producer.transaction()"'
            )
