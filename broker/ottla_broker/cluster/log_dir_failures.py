"""Reports a failed data folder to the controller, in ``/log_dir_event_notification``."""

from __future__ import annotations

import json
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.cluster.reconnecting_store import ReconnectingStore
from ottla_broker.events import get_logger
from ottla_broker.store.api import StoreError

_log = get_logger()

_NOTICE: Final = "/log_dir_event_notification/log_dir_event_"
_FAILURE: Final = 1
_RETRY_SECONDS: Final = 0.5


async def report_failed_dir(store: ReconnectingStore, broker_id: int, folder: str, clock: Clock) -> None:
    """Repeat the report until ZooKeeper has it.

    The controller then asks which partitions are offline, and elects other leaders.
    """
    data = json.dumps({"version": 1, "broker": broker_id, "event": _FAILURE}).encode()
    while True:
        try:
            await store.create(_NOTICE, data, sequence=True)
            return
        except StoreError as error:
            _log.warning("a failed data folder can't be reported", folder=folder, reason=str(error))
            await clock.sleep(_RETRY_SECONDS)
