"""The run of ``ottla produce --transactional-id``: the records count together or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

from ottla_client.errors import ClientError, TransactionAbortedError, TransactionStateError
from ottla_protocol.printable import shown_name

from ..shared.admin import plural, show_seconds
from ..shared.ending import TIDY_SECONDS
from ..shared.terminal import Console, one_line
from .parsers import Parser, Records
from .records import ProduceRun, StopError

if TYPE_CHECKING:
    from ottla_client.producer import Producer


class TransactionalRun(ProduceRun):
    """Commits at the end of the input, or also after each ``size`` records; aborts when anything else ends it.

    With a size, a transaction is also committed after half of its timeout, so that slow input doesn't exceed that.
    """

    def __init__(
        self,
        console: Console,
        topic: str,
        partition: int | None,
        on_error: str,
        rejects: IO[str] | None,
        size: int | None,
    ) -> None:
        super().__init__(console, topic, partition, on_error, rejects)
        self._size = size
        self._outcome = ""
        """How to learn the outcome of a transaction, which no broker has answered."""
        self._lock = asyncio.Lock()
        self._age = 0.0
        """Seconds after which a transaction with a size is committed anyway."""
        self._began: float | None = None
        self._in_transaction = 0
        self._transactions = 0
        self._aborted = self._uncertain = 0
        self._before = (deepcopy(self._partitions), self._bytes)
        self._timer: asyncio.Task[None] | None = None

    async def run(self, client_options: dict[str, Any], parser: Parser, files: Sequence[str]) -> None:
        self._age = client_options["transaction_timeout_ms"] / 2000
        self._outcome = (
            f"`ottla transactions describe {shown_name(client_options['transactional_id'])}` says it; "
            f"what isn't committed is aborted {show_seconds(2 * self._age)} after its begin."
        )
        try:
            await super().run(client_options, parser, files)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _send(self, producer: Producer, records: Records) -> None:
        self._cut(records)
        async with self._lock:
            start = 0
            while start < len(records):
                if self._timer is not None and self._timer.done():
                    self._timer.result()
                end = len(records) if self._size is None else start + self._size - self._in_transaction
                part = _part(records, start, end)
                start += len(part)
                if self._began is None:
                    await self._begin(producer)
                try:
                    await super()._send(producer, part)
                except TransactionAbortedError:
                    await self._wait_for_deliveries(0)
                    if not self._failed:
                        raise
                    raise StopError from None
                self._in_transaction += len(part)
                if self._size is not None and self._in_transaction >= self._size:
                    await self._commit(producer)

    async def _begin(self, producer: Producer) -> None:
        await producer.begin_transaction()
        self._console.ending.last_words = f"The last transaction may be open: {self._outcome}"
        self._began = monotonic()
        self._before = (deepcopy(self._partitions), self._bytes)
        if self._size is not None:
            self._timer = asyncio.get_running_loop().create_task(self._commit_later(producer, self._began))

    async def _commit_later(self, producer: Producer, began: float) -> None:
        await asyncio.sleep(self._age)
        async with self._lock:
            if self._began == began:
                self._timer = None
                await self._commit(producer)

    async def _commit(self, producer: Producer) -> None:
        """Commit. Raises StopError if a record was not delivered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            await producer.commit_transaction(self._console.timeout)
        except TransactionAbortedError:
            await self._wait_for_deliveries(0)
            if not self._failed:
                raise
            raise StopError from None
        await self._wait_for_deliveries(0)
        self._began = None
        self._console.ending.last_words = ""
        self._in_transaction = 0
        self._transactions += 1

    async def _finish(self, producer: Producer, stopped: BaseException | None) -> None:
        async with self._lock:
            if self._began is None:
                return
            try:
                if stopped is None and not self._failed:
                    await self._commit(producer)
                    return
            except StopError:
                pass  # already reported: the transaction is aborted below
            self._aborted = self._in_transaction
            interrupted = isinstance(stopped, asyncio.CancelledError)
            try:
                await producer.abort_transaction(TIDY_SECONDS if interrupted else self._console.timeout)
            except TransactionStateError:  # its commit was asked for, and no answer came
                self._aborted, self._uncertain = 0, self._in_transaction
            except ClientError as error:
                self._console.note(f"the transaction could not be aborted: {one_line(error)}")
            finally:
                # Deliveries of this transaction don't count, nor do failures because of the abort.
                self._open.clear()
                self._partitions, self._bytes = self._before

    def _more(self) -> dict[str, Any]:
        return {"transactions": self._transactions, "aborted": self._aborted, "uncertain": self._uncertain}

    def _note_end(self, *, interrupted: bool) -> None:
        self._console.note(f"{plural(self._transactions, 'transaction')} committed")
        if self._aborted:
            what = "Interrupted; the" if interrupted else "The"
            self._console.note(
                f"{what} last transaction was not committed: none of its {plural(self._aborted, 'record')} counts."
            )
        if self._uncertain:
            self._console.note(
                f"The last transaction may have been committed: no answer says whether its "
                f"{plural(self._uncertain, 'record')} {'counts' if self._uncertain == 1 else 'count'}. "
                f"{self._outcome}"
            )


def _part(records: Records, start: int, end: int) -> Records:
    """Some of the records; the failures stay shared."""

    def cut(column: list[Any] | None) -> list[Any] | None:
        return None if column is None else column[start:end]

    if start == 0 and end >= len(records):
        return records
    return Records(
        records.file,
        records.values[start:end],
        records.lines[start:end],
        cut(records.keys),
        cut(records.headers),
        cut(records.timestamps),
        records.failures,
        records.read,
    )
