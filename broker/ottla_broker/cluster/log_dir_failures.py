"""Reports a failed data folder to the controller, in ``/log_dir_event_notification``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla_broker.clock import Clock
from ottla_broker.cluster.reconnecting_store import ReconnectingStore
from ottla_broker.events import get_logger
from ottla_broker.store.api import StoreError

if TYPE_CHECKING:
    from ottla_broker.replica.partition import Partition

_log = get_logger()

_NOTICE: Final = "/log_dir_event_notification/log_dir_event_"
_FAILURE: Final = 1
_RETRY_SECONDS: Final = 0.5


class LogDirFailures:
    """Owned by the loop thread. A report is repeated until ZooKeeper has it."""

    def __init__(self, store: ReconnectingStore, broker_id: int, clock: Clock) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def folder_failed(self, folder: str, partitions: Sequence[Partition]) -> None:
        """Report a folder. The controller asks which partitions are offline, and elects other leaders."""
        task = asyncio.get_running_loop().create_task(self._report(folder))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _report(self, folder: str) -> None:
        data = json.dumps({"version": 1, "broker": self._broker_id, "event": _FAILURE}).encode()
        while True:
            try:
                await self._store.create(_NOTICE, data, sequence=True)
                return
            except StoreError as error:
                _log.warning(
                    "a failed data folder can't be reported",
                    folder=folder,
                    reason=str(error),
                )
                await self._clock.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
