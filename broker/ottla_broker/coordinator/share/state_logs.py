"""Cuts the partitions of ``__share_group_state`` before what states need, once that is on the device."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla_broker.events import get_logger
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import KafkaError

_log = get_logger()


class StateLogs:
    """Owned by the loop thread. ``find`` finds a partition of the topic, if this broker has it."""

    def __init__(self, find: Callable[[int], Partition | None]) -> None:
        self._find = find

    def delete_before(self, index: int, offset: int) -> None:
        """Delete what is before ``offset``, where the first snapshot stands that a state still needs.

        All snapshots have to outlive a loss of power, so what the log has now is flushed first. Raises KafkaError: this
        broker doesn't lead, or the log's.
        """
        partition = self._find(index)
        if partition is None:
            return
        partition.check_leader()
        log = partition.log
        if offset <= log.log_start_offset:
            return

        def flushed(done: asyncio.Future[None]) -> None:
            # After an error the log is out of service, and says so.
            if done.cancelled() or done.exception() is not None or self._find(index) is not partition:
                return
            try:
                if offset <= partition.high_watermark:
                    partition.delete_records(offset)
            except KafkaError as error:
                # Another broker leads, or the disk fails: the next pruning tries again.
                _log.debug("state of share groups not pruned", partition=index, reason=str(error))

        log.flushed(log.log_end_offset).add_done_callback(flushed)
