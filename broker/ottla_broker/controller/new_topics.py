"""Settings and checks of new topics, in a cluster and on a standalone broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.controller.api import ZERO_ID, CreatedTopic, NewTopic
from ottla_broker.controller.config_admin import check_topic
from ottla_broker.controller.validation import Collisions, check_batch_size, check_topic_name
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla_broker.store.keys import encode_uuid, new_uuid
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.partitioning import LAG_TOPIC

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.config import BrokerConfig
    from ottla_broker.log.config import LogConfig

PROHIBITED_TOPIC: Final = "__cluster_metadata"
_MANY: Final = 16
"""Partitions of a new topic after which others get their turn on the event loop."""


class PlannedTopic(NamedTuple):
    """A topic that can be created. ``configs`` are its own settings, ``in_force`` the log's with them."""

    name: str
    id: bytes
    assignments: Mapping[int, Sequence[int]]
    configs: dict[str, str]
    in_force: LogConfig


async def plan_topics(
    topics: Sequence[NewTopic],
    config: BrokerConfig,
    random: Random,
    assign: Callable[[NewTopic], Mapping[int, Sequence[int]]],
    *,
    known: Collection[str],
    doomed: Collection[str],
    validate_only: bool,
) -> tuple[list[CreatedTopic], dict[int, PlannedTopic]]:
    """Work out the topics of one request, with Kafka's checks in Kafka's order.

    ``assign`` chooses replicas, or raises KafkaError. ``doomed`` are topics whose deletion isn't finished; ``known``
    are all that exist, with or without those.

    Returns each topic's outcome, and those that can be created, by their place in the request.
    """
    outcomes: list[CreatedTopic] = []
    planned: dict[int, PlannedTopic] = {}
    names: set[str] = set()
    taken = Collisions(known)
    partitions = 0
    async for at, topic in unhurried(enumerate(topics)):
        name = topic.name
        try:
            if (name in known and name not in doomed) or name in names:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            check_no_nulls(topic)
            assignments = assign(topic)
            check_new_name(name)
            if name in doomed:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
            taken.check(name)
            configs, in_force = check_new_configs(config, name, topic.configs)
            check_batch_size(partitions + len(assignments))
        except KafkaError as error:
            outcomes.append(CreatedTopic(error.code, error.message, name=name))
            continue
        names.add(name)
        taken.add(name)
        partitions += len(assignments)
        planned[at] = plan = PlannedTopic(name, new_topic_id(random), assignments, configs, in_force)
        outcomes.append(
            CreatedTopic(
                name=name,
                topic_id=ZERO_ID if validate_only else plan.id,
                num_partitions=len(assignments),
                replication_factor=len(next(iter(assignments.values()))),
                configs=configs,
            )
        )
        if len(assignments) > _MANY:
            await asyncio.sleep(0)
    return outcomes, planned


def new_topic_id(random: Random) -> bytes:
    """A random UUID (version 4) that doesn't begin with a dash in base64, as Kafka's ``Uuid.randomUuid``."""
    while encode_uuid(found := new_uuid(random)).startswith("-"):
        pass
    return found


def new_topic_on_first_use(config: BrokerConfig, name: str) -> NewTopic:
    """The settings with which a topic is created when it is first used.

    The internal topics have their own settings (``GroupCoordinator.groupMetadataTopicConfigs``,
    ``TransactionStateManager.transactionTopicConfigs``,
    ``ShareCoordinatorService.shareGroupStateTopicConfigs``); other topics get the broker's defaults.

    Raises KafkaError: INVALID_TOPIC_EXCEPTION.
    """
    check_topic_name(name)
    if name == TRANSACTION_TOPIC:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )
    if name == SHARE_STATE_TOPIC:
        return NewTopic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            configs={
                # Updates of one key add up, so the log is never compacted; the coordinator deletes its start.
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    if name == LAG_TOPIC:
        return NewTopic(
            name,
            config.ottla_lag_history_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "compression.type": "producer",
                # Each lap of the ring overwrites its keys; keys that are no longer written expire after eight days.
                "cleanup.policy": "compact,delete",
                "retention.ms": str(8 * 86_400_000),
                "segment.ms": str(86_400_000),
                "segment.bytes": str(16 * 1024 * 1024),
            },
        )
    if name != OFFSETS_TOPIC:
        return NewTopic(name)
    return NewTopic(
        name,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        configs={
            "compression.type": "producer",
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def check_new_name(name: str) -> None:
    """Raises KafkaError for a name that no topic can have, or that a client may not create."""
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
    """A new topic's own settings, and the log's configs with them.

    Raises KafkaError: INVALID_CONFIG. Kafka names the resource in messages about changes, not about creation.
    """
    settings = {key: value for key, value in configs.items() if value is not None}
    try:
        return settings, check_topic(config, name, settings)
    except KafkaError as error:
        _, found, rest = (error.message or "").partition("'): ")
        raise KafkaError(error.code, rest if found else error.message) from error
