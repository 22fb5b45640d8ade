"""The errors that clients get of groups, above all when the log refuses a coordinator's record.

The log's error is about ``__consumer_offsets``; clients know only the coordinator, and get an error about that. Kafka:
``storeGroup`` and ``maybeConvertOffsetCommitError`` in ``GroupMetadataManager.scala``.
"""

from __future__ import annotations

from ottla_broker.coordinator import codes
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

_MOVED = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_ENOUGH_REPLICAS: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_LEADER_OR_FOLLOWER: codes.NOT_COORDINATOR,
    codes.KAFKA_STORAGE_ERROR: codes.NOT_COORDINATOR,
}

_TOO_LARGE = (codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE, codes.INVALID_FETCH_SIZE)

COMMIT: dict[int, int] = {**_MOVED, **dict.fromkeys(_TOO_LARGE, codes.INVALID_COMMIT_OFFSET_SIZE)}
"""For the answers to OffsetCommit, DeleteGroups and OffsetDelete."""

STORE: dict[int, int] = {
    **_MOVED,
    **dict.fromkeys(_TOO_LARGE, codes.UNKNOWN_SERVER_ERROR),
    codes.REQUEST_TIMED_OUT: codes.REBALANCE_IN_PROGRESS,
}
"""For the answers to JoinGroup and SyncGroup, where the record is the group's metadata."""


def commit_error(error: int) -> int:
    return COMMIT.get(error, error)


def store_error(group_id: str, error: int, size: int | None = None) -> int:
    """The error for members. ``size``: bytes of the record, for the log."""
    answer = STORE.get(error, error)
    if answer == codes.UNKNOWN_SERVER_ERROR:
        _log.error(
            "a group has too many members, or too large ones, for a record of __consumer_offsets; raise the topic's"
            " max.message.bytes, set offsets.topic.compression.codec, or bound groups by group.max.size",
            group=group_id,
            bytes=size,
            error=error,
        )
    return answer


def refused(group_id: str, code: int) -> KafkaError:
    """Return clients' error where the log refuses a record (``appendGroupMetadataErrorToResponseError``)."""
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return KafkaError(ErrorCode(store_error(group_id, code)))


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def unknown_instance(instance_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")


def max_size_reached(kind: str, maximum: int) -> KafkaError:
    """The error of a joining member; ``kind``: "consumer" or "share"."""
    return KafkaError(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The {kind} group has reached its maximum capacity of {maximum} members.",
    )
