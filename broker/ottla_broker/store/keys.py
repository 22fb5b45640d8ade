"""The nodes of the store: one class per node with its path, encoding and decoding.

Paths and JSON are Apache Kafka's (``ZkData.scala``), so that its tools and brokers can read them. Nodes without a
``decode`` have no data. Nodes that Kafka doesn't have are at the end, and exist in the embedded store only.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from random import Random

T = TypeVar("T")

_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

DEFAULT_ENTITY: Final = "<default>"


class BadNodeError(ValueError):
    """A node's data is invalid; the message names the path."""


def encode_object(value: Mapping[str, Any]) -> bytes:
    """A node's JSON object, as short as it can be."""
    return _dumps(value).encode()


def decode_object(path: str, data: bytes) -> dict[str, Any]:
    """A node's JSON object. Raises BadNodeError."""
    try:
        found = json.loads(data)
    except (RecursionError, ValueError) as error:
        raise BadNodeError(f"{path}: is not JSON") from error
    if not isinstance(found, dict):
        raise BadNodeError(f"{path}: is not a JSON object")
    return found


def read_object(path: str, data: bytes, error: str, read: Callable[[dict[str, Any]], T]) -> T:
    """Return ``read`` of a node's JSON object. Raises BadNodeError, with the words ``error`` if ``read`` fails."""
    found = decode_object(path, data)
    try:
        return read(found)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as cause:
        raise BadNodeError(f"{path}: {error}") from cause


_LONGEST_INT32: Final = 10
_MOST_STRING: Final = 32767


def _text(value: object) -> str:
    """A text of a node that goes into requests. Raises ValueError for any other value."""
    if not isinstance(value, str) or len(value.encode()) > _MOST_STRING:
        raise ValueError
    return value


def _int32(value: object) -> int:
    """A number of a node that goes into requests. Raises ValueError for any other value."""
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise ValueError
    return value


def _leader_epoch(value: object) -> int:
    """An epoch that the next election can raise. Raises ValueError for any other value."""
    epoch = _int32(value)
    if epoch == 2**31 - 1:
        raise ValueError
    return epoch


def _int32s(values: Any) -> Sequence[int]:
    """Several such numbers. Raises ValueError for any other value."""
    if not isinstance(values, list | tuple):
        raise ValueError
    for each in values:
        _int32(each)
    return values


def _read_number(path: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise BadNodeError(f"{path}: is not a number") from error


class _NumberNode:
    """A node that holds a number as decimal digits."""

    PATH: ClassVar[str]

    @staticmethod
    def encode(number: int) -> bytes:
        return str(number).encode()

    @classmethod
    def decode(cls, data: bytes) -> int:
        return _read_number(cls.PATH, data)


def decimal(name: str) -> int | None:
    """The number of a partition or a broker that a node's name is; None for another name."""
    if not (name.isascii() and name.isdecimal() and len(name) <= _LONGEST_INT32):
        return None
    number = int(name)
    return number if number < 2**31 else None


def new_uuid(random: Random) -> bytes:
    """A random UUID (version 4)."""
    bits = random.getrandbits(128) & ~(0xF << 76 | 3 << 62) | (4 << 76 | 2 << 62)
    return bits.to_bytes(16, "big")


def encode_uuid(value: bytes) -> str:
    """A topic or cluster id as Kafka's ``Uuid.toString``: URL-safe base64 without padding."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    """Sixteen bytes. Raises ValueError for anything else."""
    value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"{text} is not the base64 of 16 bytes")
    return value


PERSISTENT_PATHS: Final = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/config/client-metrics",
    "/config/groups",
)
"""The paths that Kafka creates at start (``ZkData.PersistentZkPaths``)."""


class ClusterIdNode:
    """``/cluster/id``: the cluster's id, 16 bytes as base64."""

    PATH: Final = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        return encode_object({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        found = decode_object(ClusterIdNode.PATH, data).get("id")
        if not isinstance(found, str):
            raise BadNodeError(f"{ClusterIdNode.PATH}: has no id")
        return found


class ConsumerIdsNode:
    """``/consumers/GROUP/ids``: has a child for each live ZooKeeper consumer of the group; those are ephemeral."""

    PARENT: Final = "/consumers"

    @staticmethod
    def path(group_id: str) -> str:
        return f"{ConsumerIdsNode.PARENT}/{group_id}/ids"


class ConsumerOffsetNode:
    """``/consumers/GROUP/offsets/TOPIC/PARTITION``: a group's offset in ZooKeeper, as decimal digits.

    Consumers of Kafka 0.8 to 1.1 keep their offsets here, and so do OffsetCommit and OffsetFetch 0.
    """

    @staticmethod
    def path(group_id: str, topic: str, partition: int) -> str:
        return f"/consumers/{group_id}/offsets/{topic}/{partition}"

    encode = _NumberNode.encode

    @staticmethod
    def decode(path: str, data: bytes) -> int:
        offset = _read_number(path, data)
        if not -(1 << 63) <= offset < 1 << 63:
            raise BadNodeError(f"{path}: is no offset, which has 64 bits")
        return offset


class ConsumerOwnerNode:
    """``/consumers/GROUP/owners/TOPIC/PARTITION``: the id of the consumer's stream that owns a partition.

    Ephemeral where consumers write it themselves, persistent where the 2012 coordinator does.
    """

    @staticmethod
    def path(group_id: str, topic: str, partition: int) -> str:
        return f"/consumers/{group_id}/owners/{topic}/{partition}"

    @staticmethod
    def decode(path: str, data: bytes) -> str:
        try:
            owner = data.decode()
        except UnicodeDecodeError as error:
            raise BadNodeError(f"{path}: is not UTF-8") from error
        if not owner:
            raise BadNodeError(f"{path}: names no owner")
        return owner


class CoordinatorNode(_NumberNode):
    """``/consumers/coordinator``: the broker that is the 2012 coordinator; ephemeral."""

    PATH = "/consumers/coordinator"


class CoordinatedGroupNode:
    """``/ottla/coordinated/GROUP``: the 2012 coordinator that has consumers of the group; ephemeral, and not Kafka's.

    Other brokers, and consumers that coordinate in ZooKeeper, leave such a group alone.
    """

    PARENT: Final = "/ottla/coordinated"

    @staticmethod
    def path(group_id: str) -> str:
        return f"{CoordinatedGroupNode.PARENT}/{group_id}"

    encode = _NumberNode.encode


class CoordinatorListenerNode:
    """``/ottla/coordinators/N``: the address of a broker's ``coordinator.listener``; ephemeral, and not Kafka's."""

    PARENT: Final = "/ottla/coordinators"

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{CoordinatorListenerNode.PARENT}/{broker_id}"

    @staticmethod
    def encode(host: str, port: int) -> bytes:
        return encode_object({"version": 1, "host": host, "port": port})

    @staticmethod
    def decode(path: str, data: bytes) -> tuple[str, int]:
        return read_object(
            path,
            data,
            "is not the address of a listener",
            lambda found: (str(found["host"]), int(found["port"])),
        )


class BrokerRegistration(NamedTuple):
    """A broker's addresses and rack.

    ``endpoints`` are ``NAME://HOST:PORT``, ``protocols`` by listener name, ``features`` the supported levels by name.
    """

    host: str | None
    port: int
    endpoints: Sequence[str]
    protocols: Mapping[str, str]
    rack: str | None
    timestamp_ms: int
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})


class BrokerIdNode:
    """``/brokers/ids/N``, ephemeral: a live broker. JSON version 5 (Kafka 2.7 and later)."""

    PARENT: Final = "/brokers/ids"

    @staticmethod
    def path(broker_id: int) -> str:
        return f"/brokers/ids/{broker_id}"

    @staticmethod
    def encode(broker: BrokerRegistration) -> bytes:
        value: dict[str, Any] = {
            "features": {
                name: {"min_version": lowest, "max_version": highest}
                for name, (lowest, highest) in broker.features.items()
            },
            "listener_security_protocol_map": dict(broker.protocols),
            "endpoints": list(broker.endpoints),
            "jmx_port": -1,
            "port": broker.port,
            "host": broker.host,
            "version": 5,
            "timestamp": str(broker.timestamp_ms),
        }
        if broker.rack is not None:
            value["rack"] = broker.rack
        return encode_object(value)

    @staticmethod
    def decode(broker_id: int, data: bytes) -> BrokerRegistration:
        return read_object(
            BrokerIdNode.path(broker_id),
            data,
            "is not a broker's registration",
            lambda found: BrokerRegistration(
                found["host"],
                int(found["port"]),
                list(map(_text, found["endpoints"])),
                {_text(k): _text(v) for k, v in found.get("listener_security_protocol_map", {}).items()},
                None if found.get("rack") is None else _text(found["rack"]),
                int(found["timestamp"]),
                {
                    name: (int(levels["min_version"]), int(levels["max_version"]))
                    for name, levels in found.get("features", {}).items()
                },
            ),
        )


class FeatureNode:
    """``/feature``: the levels of finalized features. JSON version 2, or 1 with lowest levels; status 0 is off."""

    PATH: Final = "/feature"

    @staticmethod
    def encode(levels: Mapping[str, int]) -> bytes:
        features = {name: {"max_version_level": level} for name, level in levels.items()}
        return encode_object({"version": 2, "status": 1, "features": features})

    @staticmethod
    def decode(data: bytes) -> dict[str, int]:
        return read_object(
            FeatureNode.PATH,
            data,
            "has no features",
            lambda found: {
                name: int(levels["max_version_level"])
                for name, levels in found["features"].items()
                if found["status"] == 1
            },
        )


class ControllerNode:
    """``/controller``, ephemeral: the broker that is the controller."""

    PATH: Final = "/controller"

    @staticmethod
    def encode(broker_id: int, timestamp_ms: int) -> bytes:
        return encode_object(
            {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
        )

    @staticmethod
    def decode(data: bytes) -> int:
        found = decode_object(ControllerNode.PATH, data).get("brokerid")
        if not isinstance(found, int):
            raise BadNodeError(f"{ControllerNode.PATH}: has no broker id")
        return found


class ControllerEpochNode(_NumberNode):
    """``/controller_epoch``: a number that goes up with each election."""

    PATH = "/controller_epoch"


class Assignment(NamedTuple):
    """A partition's replicas, and the ones being added and removed (KIP-455)."""

    replicas: Sequence[int]
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


class TopicNode:
    """``/brokers/topics/T``: a topic's id and the assignment of its partitions. JSON version 3."""

    PARENT: Final = "/brokers/topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/brokers/topics/{topic}"

    @staticmethod
    def encode(topic_id: bytes | None, assignments: Mapping[int, Assignment]) -> bytes:
        value: dict[str, Any] = {"partitions": {str(i): list(a.replicas) for i, a in assignments.items()}}
        if topic_id is not None:
            value["topic_id"] = encode_uuid(topic_id)
        value["adding_replicas"] = {str(i): list(a.adding) for i, a in assignments.items() if a.adding}
        value["removing_replicas"] = {str(i): list(a.removing) for i, a in assignments.items() if a.removing}
        value["version"] = 3
        return encode_object(value)

    @staticmethod
    def decode(topic: str, data: bytes) -> tuple[bytes | None, dict[int, Assignment]]:
        """The topic's id (``None`` if created before Kafka 2.8) and its partitions by number."""
        path = TopicNode.path(topic)
        found = decode_object(path, data)
        try:
            text = found.get("topic_id")
            adding = found.get("adding_replicas", {})
            removing = found.get("removing_replicas", {})
            assignments = {
                _int32(int(i)): Assignment(
                    _int32s(replicas), _int32s(adding.get(i, ())), _int32s(removing.get(i, ()))
                )
                for i, replicas in found.get("partitions", {}).items()
            }
            if any(i < 0 or not each.replicas for i, each in assignments.items()):
                raise ValueError
            return (None if text is None else decode_uuid(text)), dict(sorted(assignments.items()))
        except (AttributeError, TypeError, ValueError) as error:
            raise BadNodeError(f"{path}: is not a topic's assignment") from error


class TopicPartitionsNode:
    """``/brokers/topics/T/partitions``."""

    @staticmethod
    def path(topic: str) -> str:
        return f"/brokers/topics/{topic}/partitions"


class TopicPartitionNode:
    """``/brokers/topics/T/partitions/P``."""

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"/brokers/topics/{topic}/partitions/{partition}"


class PartitionState(NamedTuple):
    """A partition's leader, leader epoch and in-sync replicas."""

    leader: int
    leader_epoch: int
    isr: Sequence[int]
    controller_epoch: int


class TopicPartitionStateNode:
    """``/brokers/topics/T/partitions/P/state``. JSON version 1."""

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"/brokers/topics/{topic}/partitions/{partition}/state"

    @staticmethod
    def encode(state: PartitionState) -> bytes:
        return encode_object(
            {
                "controller_epoch": state.controller_epoch,
                "leader": state.leader,
                "version": 1,
                "leader_epoch": state.leader_epoch,
                "isr": list(state.isr),
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> PartitionState:
        return read_object(
            path,
            data,
            "is not a partition's state",
            lambda found: PartitionState(
                _int32(found["leader"]),
                _leader_epoch(found["leader_epoch"]),
                _int32s(found["isr"]),
                _int32(found["controller_epoch"]),
            ),
        )


class ConfigNode:
    """``/config/topics/T``, ``/config/brokers/N``, ``/config/groups/G``, ``/config/client-metrics/S``: own settings.

    JSON version 1. The names of groups and subscriptions may have any characters, so those of their nodes are
    percent-encoded.
    """

    TOPICS: Final = "topics"
    BROKERS: Final = "brokers"
    GROUPS: Final = "groups"
    CLIENT_METRICS: Final = "client-metrics"

    @staticmethod
    def path(kind: str, name: str) -> str:
        return f"/config/{kind}/{name}"

    @staticmethod
    def group_node_name(group_id: str) -> str:
        """The name of a group's or a subscription's node. ``.`` and ``..`` can't be parts of a path."""
        return (
            quote(group_id, safe="").replace(".", "%2E")
            if group_id in (".", "..")
            else quote(group_id, safe="")
        )

    @staticmethod
    def group_of(node_name: str) -> str:
        return unquote(node_name)

    @staticmethod
    def encode(configs: Mapping[str, str]) -> bytes:
        return encode_object({"version": 1, "config": dict(configs)})

    @staticmethod
    def decode(path: str, data: bytes) -> dict[str, str]:
        if not data:
            return {}
        found = decode_object(path, data).get("config", {})
        if not isinstance(found, dict):
            raise BadNodeError(f"{path}: is not a map of configs")
        return {str(name): str(value) for name, value in found.items()}


class ConfigChangeNode:
    """``/config/changes/config_change_N``: notifies of changed settings of an entity. JSON version 2.

    A Kafka broker with ZooKeeper logs an error for a kind of entity that it doesn't know. So changes of kinds that
    Kafka keeps with KRaft alone are in ``/ottla/config_changes``, where it doesn't look.
    """

    PARENT: Final = "/config/changes"
    OWN_PARENT: Final = "/ottla/config_changes"
    PARENTS: Final = (PARENT, OWN_PARENT)
    NAME: Final = "config_change_"
    PREFIX: Final = f"{PARENT}/{NAME}"
    OWN_KINDS: Final = (ConfigNode.GROUPS, ConfigNode.CLIENT_METRICS)

    @staticmethod
    def prefix(kind: str) -> str:
        """The path before the number, for a kind of entity."""
        own = kind in ConfigChangeNode.OWN_KINDS
        return f"{ConfigChangeNode.OWN_PARENT if own else ConfigChangeNode.PARENT}/{ConfigChangeNode.NAME}"

    @staticmethod
    def encode(kind: str, name: str) -> bytes:
        return encode_object({"version": 2, "entity_path": f"{kind}/{name}"})

    @staticmethod
    def decode(path: str, data: bytes) -> str:
        """``topics/T``; version 1 has separate fields for type and name."""

        def read(found: dict[str, Any]) -> str:
            return str(found.get("entity_path") or f"{found['entity_type']}/{found['entity_name']}")

        return read_object(path, data, "is not a notification of a change", read)


class DeleteTopicNode:
    """``/admin/delete_topics/T``: the request to delete a topic; without data."""

    PARENT: Final = "/admin/delete_topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/admin/delete_topics/{topic}"


class ProducerIdBlock(NamedTuple):
    """Producer ids that a broker may give out; ``last`` is included."""

    broker: int
    first: int
    last: int


class ProducerIdBlockNode:
    """``/latest_producer_id_block``: the last block of producer ids given to a broker."""

    PATH: Final = "/latest_producer_id_block"

    @staticmethod
    def encode(block: ProducerIdBlock) -> bytes:
        # Kafka writes both as strings, because not every JSON reader has 64-bit integers.
        return encode_object(
            {
                "version": 1,
                "broker": block.broker,
                "block_start": str(block.first),
                "block_end": str(block.last),
            }
        )

    @staticmethod
    def decode(data: bytes) -> ProducerIdBlock | None:
        """Returns ``None`` for the empty node before the first block."""
        if not data:
            return None
        return read_object(
            ProducerIdBlockNode.PATH,
            data,
            "is not a block of producer ids",
            lambda found: ProducerIdBlock(
                int(found["broker"]), int(found["block_start"]), int(found["block_end"])
            ),
        )


class LastEpochNode:
    """``/ottla/last_leader_epochs/T``: the highest leader epoch that a deleted topic of this name had.

    Kafka doesn't have it. A new topic of that name starts above it, so that no client sees an epoch go back. Decimal
    text.
    """

    PARENT: Final = "/ottla/last_leader_epochs"

    @staticmethod
    def path(topic: str) -> str:
        return f"/ottla/last_leader_epochs/{topic}"

    encode = _NumberNode.encode

    @staticmethod
    def decode(topic: str, data: bytes) -> int:
        return _read_number(LastEpochNode.path(topic), data)


class LoginSecretNode:
    """``/ottla/login_secret``: 32 random bytes, which make the salts of SCRAM users that don't exist.

    Kafka doesn't have it. A broker with a listener for SCRAM makes it once.
    """

    PATH: Final = "/ottla/login_secret"


class AdoptedNode:
    """``/ottla/adopted``: the end of Kafka's metadata log that ``ottla log adopt`` made the store from.

    Kafka doesn't have it. If the log still ends there, Kafka has not run since, and the store is newer.
    """

    PATH: Final = "/ottla/adopted"

    @staticmethod
    def encode(end_offset: int, last_crc: int) -> bytes:
        """``last_crc`` is the CRC of the last batch."""
        return encode_object({"version": 1, "end_offset": end_offset, "last_crc": last_crc})


OWN_PATHS: Final[Iterable[str]] = (LastEpochNode.PARENT,)
"""The paths of the embedded store that Kafka doesn't have."""
