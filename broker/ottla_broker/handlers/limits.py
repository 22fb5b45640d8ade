"""Limits a request's elements by the memory that they take, before they are made.

Two bytes of a request can become an object of two hundred. What elements take is estimated by
:func:`ottla_protocol.layout.element_cost`, and is limited by API. One request may still have more elements than real
clients send: 20,000 partitions with their assignments in CreateTopics, 45,000 topics in Metadata, 30,000 partitions in
ListOffsets and OffsetCommit, 65,000 in OffsetFetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_broker.handlers.turns import Reserved, Room
from ottla_protocol.api_keys import ApiKey

MiB: Final = 1024 * 1024

ELEMENT_MEMORY: Final = 8 * MiB
"""Bytes for the elements of a request."""
_OTHERS: Final[Mapping[int, int]] = {
    # About 7,000 partitions, which are decoded in one turn of the event loop.
    ApiKey.PRODUCE: 5 * MiB // 2,
    # About a thousand protocols, which a group compares for each member.
    ApiKey.JOIN_GROUP: 256 * 1024,
    # Partitions by bare numbers, whose answers take more memory than they: 65,000 to 8,000.
    ApiKey.OFFSET_FETCH: 4 * MiB,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 4 * MiB,
    ApiKey.DESCRIBE_LOG_DIRS: MiB,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 2 * MiB,
    ApiKey.DESCRIBE_PRODUCERS: MiB,
    ApiKey.ADD_PARTITIONS_TO_TXN: MiB,
    ApiKey.WRITE_TXN_MARKERS: MiB // 2,
    ApiKey.ELECT_LEADERS: MiB // 2,
    ApiKey.UPDATE_FEATURES: MiB // 2,
    # Served in one turn: thousands of members, rules, users and quotas.
    ApiKey.LEAVE_GROUP: 2 * MiB,
    ApiKey.DELETE_GROUPS: 4 * MiB,
    ApiKey.DELETE_TOPICS: 4 * MiB,
    ApiKey.CREATE_ACLS: 2 * MiB,
    ApiKey.DELETE_ACLS: MiB,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 2 * MiB,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 2 * MiB,
    ApiKey.ALTER_CLIENT_QUOTAS: 4 * MiB,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 2 * MiB,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 2 * MiB,
    ApiKey.SHARE_GROUP_HEARTBEAT: 2 * MiB,
    # About 3,500 partitions, which are read in one turn.
    ApiKey.SHARE_FETCH: MiB,
    ApiKey.SHARE_ACKNOWLEDGE: MiB,
    # For those who are no brokers, and are refused.
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: MiB // 2,
    ApiKey.READ_SHARE_GROUP_STATE: MiB // 2,
    ApiKey.WRITE_SHARE_GROUP_STATE: MiB // 2,
    ApiKey.DELETE_SHARE_GROUP_STATE: MiB // 2,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: MiB // 2,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: MiB // 2,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: MiB // 2,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: MiB // 2,
}
"""APIs with another limit than ``ELEMENT_MEMORY``."""

MOST_ANSWER: Final = 32 * MiB
"""About how many bytes of descriptions an answer has; what is named after that is for the next request."""
_ANSWERS: Final[Mapping[int, Reserved]] = {
    **dict.fromkeys(
        (
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_ACLS,
        ),
        Reserved(Room.DESCRIPTIONS, MOST_ANSWER),
    ),
    # A short request asks for all topics, groups, ids or offsets.
    **dict.fromkeys(
        (
            ApiKey.METADATA,
            ApiKey.LIST_GROUPS,
            ApiKey.LIST_TRANSACTIONS,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.OFFSET_FETCH,
        ),
        Reserved(Room.ANSWERS, 16 * MiB),
    ),
}
_NOTHING: Final = Reserved(Room.REQUESTS, 0)

QUICK_BYTES: Final = 4 * 1024
"""A request of at most this many bytes is decoded at once, whatever it holds."""
QUICK_PRODUCE_BYTES: Final = 16 * 1024
_MEMORY_OF_A_BYTE: Final = 100
"""Two bytes of a request can become an object of two hundred."""


def element_memory(api_key: int) -> int:
    """The bytes that the elements of a request may take."""
    return _OTHERS.get(api_key, ELEMENT_MEMORY)


def quick_bytes(api_key: int) -> int:
    """The size up to which requests of an API are decoded at once, and without counting."""
    return QUICK_PRODUCE_BYTES if api_key == ApiKey.PRODUCE else QUICK_BYTES


def most_memory(memory: int, size: int) -> int:
    """The bytes that the elements of a request of ``size`` bytes take at most, if they may take ``memory``."""
    return min(memory, _MEMORY_OF_A_BYTE * size)


def answer_memory(api_key: int) -> Reserved:
    """Return what is reserved while an answer is made in turns; nothing where it is in proportion to its request."""
    return _ANSWERS.get(api_key, _NOTHING)
