"""What new topics are given and must fulfil, whoever is the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla_broker.controller.api import NewTopic
from ottla_broker.controller.configs import check_topic
from ottla_broker.controller.validation import check_topic_name
from ottla_broker.store.keys import encode_uuid
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.config import BrokerConfig
    from ottla_broker.log.config import LogConfig

OFFSETS_TOPIC: Final = "__consumer_offsets"
PROHIBITED_TOPIC: Final = "__cluster_metadata"


def new_topic_id(random: Random) -> bytes:
    """A random UUID (version 4) that doesn't begin with a dash in base64, as Kafka's ``Uuid.randomUuid``."""
    while True:
        raw = bytearray(random.getrandbits(128).to_bytes(16, "big"))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if not encode_uuid(bytes(raw)).startswith("-"):
            return bytes(raw)


def offsets_topic(config: BrokerConfig, replication_factor: int) -> NewTopic:
    """Where groups' offsets go; Kafka's ``GroupCoordinator.groupMetadataTopicConfigs``."""
    return NewTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        replication_factor,
        configs={
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def check_new_name(name: str) -> None:
    """Raises KafkaError for a name that no topic can have, or none that a client may make."""
    check_topic_name(name)
    if name == PROHIBITED_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")


def check_no_nulls(topic: NewTopic) -> None:
    """Raises KafkaError(INVALID_CONFIG) for settings without a value."""
    missing = [key for key, value in topic.configs.items() if value is None]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}"
        )


def check_new_configs(
    config: BrokerConfig, name: str, configs: Mapping[str, str | None]
) -> tuple[dict[str, str], LogConfig]:
    """A new topic's own settings, and what is in force then.

    Raises:
        KafkaError: INVALID_CONFIG. Kafka names the resource in messages about changes, not about creation.
    """
    settings = {key: value for key, value in configs.items() if value is not None}
    try:
        return settings, check_topic(config, name, settings)
    except KafkaError as error:
        _, found, rest = (error.message or "").partition("'): ")
        raise KafkaError(error.code, rest if found else error.message) from error
