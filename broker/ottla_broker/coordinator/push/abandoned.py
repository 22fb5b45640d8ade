"""Removes the owners that a dead coordinator has left: their nodes are persistent, and the consumers may be dead, too.

A ZooKeeper consumer of such a group would wait for its partitions without end. Consumers that live register with the
next coordinator within a moment, unless all of a group's connections hang; then they have stopped reading before they
register again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.coordinator.push.nodes import GroupNodes
from ottla_broker.events import get_logger
from ottla_broker.store.api import StoreError
from ottla_broker.tasks import unhurried

_log = get_logger()

WAIT_SECONDS: Final = 6.0
"""How long the groups of the last coordinator are waited for: the default session timeout of a consumer."""


async def remove_abandoned_owners(nodes: GroupNodes, clock: Clock, is_here: Callable[[str], bool]) -> None:
    """Run once after an election. ``is_here``: whether a group has consumers at this coordinator."""
    await clock.sleep(WAIT_SECONDS)
    while True:
        try:
            async for group_id in unhurried(await nodes.groups()):
                if not is_here(group_id):
                    removed = await nodes.remove_owners_that_left(group_id)
                    if removed:
                        _log.info(
                            "owners of an earlier coordinator were removed",
                            group=group_id,
                            partitions=removed,
                        )
            return
        except StoreError as error:
            _log.warning("what an earlier coordinator left can't be removed now", reason=str(error))
            await clock.sleep(WAIT_SECONDS)
