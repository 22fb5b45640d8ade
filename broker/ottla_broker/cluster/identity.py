"""A broker's number in its cluster, and its registration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.store.api import BadVersionError, NodeExistsError, NoNodeError, StoreError, StoreFailedError
from ottla_broker.store.keys import BadNodeError, BrokerIdNode, BrokerRegistration

if TYPE_CHECKING:
    from ottla_broker.store.zookeeper import ZooKeeperStore

_log = get_logger()

SEQUENCE_PATH: Final = "/brokers/seqid"


async def generate_broker_id(store: ZooKeeperStore, reserved: int) -> int:
    """A new broker id, above ``reserved``.

    The version of ``/brokers/seqid`` is the sequence (Kafka: ``KafkaZkClient.generateBrokerSequenceId``).
    """
    while True:
        try:
            return reserved + await store.set(SEQUENCE_PATH, b"")
        except NoNodeError:
            try:
                await store.create(SEQUENCE_PATH, parents=True)
            except NodeExistsError:
                continue


async def register(store: ZooKeeperStore, broker_id: int, registration: BrokerRegistration) -> int:
    """Create ``/brokers/ids/N``; returns the broker's epoch.

    An existing node with the same addresses is left from an earlier process of this broker, whose session has not
    expired: the port is this process's now. A node with other addresses belongs to another broker.

    Raises StoreError: the number is in use.
    """
    path = BrokerIdNode.path(broker_id)
    data = BrokerIdNode.encode(registration)
    while True:
        try:
            await store.create(path, data, ephemeral=True)
        except NodeExistsError:
            if await store.ephemeral_owner(path) == store.session_id:
                break
            await _remove_stale(store, broker_id, path, registration)
            continue
        break
    epoch = await store.created_at(path)
    if epoch is None:
        raise StoreError(f"{path} disappeared right after it was created")
    _log.info("registered", broker=broker_id, epoch=epoch, endpoints=list(registration.endpoints))
    return epoch


async def _remove_stale(
    store: ZooKeeperStore, broker_id: int, path: str, registration: BrokerRegistration
) -> None:
    try:
        found, version = await store.get(path)
        other = BrokerIdNode.decode(broker_id, found)
    except NoNodeError:
        return
    except BadNodeError as error:
        raise StoreFailedError(f"{path} exists but can't be read: {error}") from error
    if list(other.endpoints) != list(registration.endpoints):
        raise StoreFailedError(
            f"broker.id={broker_id} is in use by a broker at {', '.join(other.endpoints)}; give this broker another"
            " number, or stop the other one and wait until its session has ended"
        )
    _log.info("removing the registration of an earlier process of this broker", broker=broker_id)
    try:
        await store.delete(path, version)
    except (NoNodeError, BadVersionError):
        return
