"""The features of the cluster: finalized in the store by its controller, followed by every broker (KIP-584).

A feature is finalized at a level that all registered brokers support. Kafka: ``FeatureZNode``,
``FinalizedFeatureChangeListener``, ``KafkaController.processFeatureUpdates``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla_broker.controller.api import Outcome
from ottla_broker.events import get_logger
from ottla_broker.store.api import NodeExistsError, NoNodeError, Store, StoreError, StoreFailedError
from ottla_broker.store.keys import BadNodeError, BrokerIdNode, FeatureNode, decimal
from ottla_broker.store.rereading import Rereading
from ottla_protocol.errors import ErrorCode
from ottla_protocol.features import TRANSACTION_VERSION, Features

if TYPE_CHECKING:
    from ottla_broker.clock import Clock
    from ottla_protocol.messages.update_features import FeatureUpdateKey

_log = get_logger()

SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {TRANSACTION_VERSION: (0, 2)}
"""The lowest and the highest level of each feature that this broker can run at."""
_ALONE: Final[Mapping[str, int]] = {TRANSACTION_VERSION: 2}
"""What a broker that stands alone finalizes. In a cluster, an administrator knows which brokers will join."""

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UPGRADE_TYPES: Final = (_UPGRADE, _SAFE_DOWNGRADE, 3)


class FeatureAdmin:
    """Owned by the loop thread. :meth:`load` first; :meth:`start` follows changes of the cluster's controller.

    Attributes:
        finalized: the features as they are now.
    """

    def __init__(self, store: Store, clock: Clock, *, alone: bool) -> None:
        self._store = store
        self._alone = alone
        self._rereading = Rereading(
            store, clock, self._read, "finalized features can't be read, trying again"
        )
        self._lock = asyncio.Lock()
        self.finalized = Features()

    async def load(self) -> None:
        """Read the features; a broker that stands alone finalizes its own at its first start.

        Raises StoreError, BadNodeError: also for a feature that this broker doesn't support.
        """
        if not await self._store.exists(FeatureNode.PATH):
            with suppress(NodeExistsError):  # another broker was quicker
                await self._store.create(FeatureNode.PATH, FeatureNode.encode(_ALONE if self._alone else {}))
        self.finalized = await self._current()
        if lacking := _unsupported(self.finalized):
            raise StoreFailedError(
                f"the cluster has finalized {lacking}, which this broker doesn't support; downgrade the feature, or run"
                " a version of the broker that supports it"
            )

    def start(self) -> None:
        """Follow the changes that the cluster's controller makes."""
        self._rereading.start(FeatureNode.PATH)

    async def close(self) -> None:
        await self._rereading.close()

    async def _current(self) -> Features:
        try:
            data, version = await self._store.get(FeatureNode.PATH)
        except NoNodeError:
            return Features()
        return Features(version, FeatureNode.decode(data))

    async def _read(self) -> None:
        try:
            found = await self._current()
        except BadNodeError as error:
            _log.error("finalized features can't be read", reason=str(error))
            found = Features()
        if lacking := _unsupported(found):
            _log.error("finalized features are ignored: this broker doesn't support one", feature=lacking)
            found = Features()
        if found != self.finalized:
            self.finalized = found
            _log.info("features finalized", epoch=found.epoch, levels=dict(found.levels))

    async def update(self, updates: Sequence[FeatureUpdateKey], *, validate_only: bool) -> list[Outcome]:
        """Finalize features; each update has its outcome. Only the cluster's controller may call this."""
        async with self._lock:
            try:
                before = await self._current()
                brokers = await self._supported_by_brokers()
            except (BadNodeError, StoreError) as error:
                return [Outcome(ErrorCode.FEATURE_UPDATE_FAILED, str(error))] * len(updates)
            levels = dict(before.levels)
            outcomes = []
            for update in updates:
                refusal = _refusal(update, before.levels.get(update.feature), brokers)
                outcomes.append(Outcome(ErrorCode.INVALID_REQUEST, refusal) if refusal else Outcome())
                if refusal:
                    continue
                levels.pop(update.feature, None)
                if update.max_version_level > 0:
                    levels[update.feature] = update.max_version_level
            if levels == before.levels or validate_only:
                return outcomes
            try:
                await self._store.set(FeatureNode.PATH, FeatureNode.encode(levels), before.epoch)
                await self._read()
            except StoreError as error:
                failed = Outcome(ErrorCode.FEATURE_UPDATE_FAILED, str(error))
                return [failed if each.error is ErrorCode.NONE else each for each in outcomes]
            return outcomes

    async def _supported_by_brokers(self) -> list[Mapping[str, tuple[int, int]]]:
        """Return what each registered broker supports."""
        found = []
        for name in await self._store.children(BrokerIdNode.PARENT):
            if (broker_id := decimal(name)) is None:
                continue
            try:
                data, _ = await self._store.get(BrokerIdNode.path(broker_id))
                found.append(BrokerIdNode.decode(broker_id, data).features)
            except NoNodeError:
                continue
            except BadNodeError as error:
                _log.warning("a registration is ignored", broker=broker_id, reason=str(error))
        return found


def _unsupported(features: Features) -> str | None:
    """A feature and its level that this broker doesn't support."""
    for name, level in features.levels.items():
        if not _covers(SUPPORTED, name, level):
            return f"{name} at level {level}"
    return None


def _covers(supported: Mapping[str, tuple[int, int]], name: str, level: int) -> bool:
    lowest, highest = supported.get(name, (0, -1))
    return lowest <= level <= highest


def _refusal(
    update: FeatureUpdateKey, existing: int | None, brokers: Sequence[Mapping[str, tuple[int, int]]]
) -> str | None:
    """Return why the update is invalid; Kafka's ``KafkaController.validateFeatureUpdate``."""
    name, level = update.feature, update.max_version_level
    kind = _SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if not name:
        return "Feature name can not be empty."
    if kind not in _UPGRADE_TYPES:
        return "Received unknown upgrade type."
    if level < 1:
        if kind == _UPGRADE:
            return (
                f"Can not provide versionLevel: {level} less than 1 without setting the SAFE"
                " downgradeType in the request."
            )
        return None if existing is not None else "Can not delete non-existing finalized feature."
    if level == existing:
        move = "upgrade" if kind == _UPGRADE else "downgrade"
        return f"Can not {move} a finalized feature from existing versionLevel:{existing} to the same value."
    if existing is not None and level < existing and kind == _UPGRADE:
        return (
            f"Can not downgrade finalized feature from existing versionLevel:{existing} to provided"
            f" versionLevel:{level} without setting the downgradeType to SAFE in the request."
        )
    if existing is not None and level > existing and kind != _UPGRADE:
        return (
            f"When the downgradeType is set to SAFE in the request, the provided versionLevel:{level} can not be"
            f" greater than existing versionLevel:{existing}."
        )
    if name not in SUPPORTED:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if not all(_covers(supported, name, level) for supported in (SUPPORTED, *brokers)):
        return (
            "Could not apply finalized feature update because brokers were found to have incompatible versions for"
            " the feature."
        )
    return None
