"""Cuts the partitions of ``__share_group_state`` before what states need, once nothing can take that away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla_broker.events import get_logger
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()


class StateLogs:
    """Owned by the loop thread. ``find`` finds a partition of the topic, if this broker has it."""

    def __init__(self, find: Callable[[int], Partition | None]) -> None:
        self._find = find

    def delete_before(self, index: int, offset: int) -> None:
        """Delete what is before ``offset``, where the first snapshot stands that a state still needs.

        All snapshots have to outlive a loss of power and a change of leaders, so what the log has now is flushed and
        committed first. Raises KafkaError: this broker doesn't lead, or the log's.
        """
        partition = self._find(index)
        if partition is None:
            return
        partition.check_leader()
        log = partition.log
        if offset <= log.log_start_offset:
            return
        end = log.log_end_offset

        def committed(error: ErrorCode, _: int) -> None:
            if error is not ErrorCode.NONE or self._find(index) is not partition:
                return
            try:
                partition.delete_records(offset)
            except KafkaError as refused:
                # Another broker leads, or the disk fails: the next pruning tries again.
                _log.debug("state of share groups not pruned", partition=index, reason=str(refused))

        def flushed(done: asyncio.Future[None]) -> None:
            # After an error the log is out of service, and says so.
            if done.cancelled() or done.exception() is not None or self._find(index) is not partition:
                return
            try:
                if partition.when_committed(end, committed) is None:
                    committed(ErrorCode.NONE, end)
            except KafkaError as refused:
                _log.debug("state of share groups not pruned", partition=index, reason=str(refused))

        log.flushed(end).add_done_callback(flushed)
