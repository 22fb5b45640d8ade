"""What both ways to alter configs check alike, with the messages of Kafka's ``ConfigAdminManager``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla_broker.controller.api import Outcome, ResourceType
from ottla_protocol.errors import ErrorCode, KafkaError

TWICE: Final = Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def supported_kind(number: int) -> ResourceType:
    """The kind of a resource whose configs can change. Raises KafkaError(INVALID_REQUEST) for others."""
    if number not in ResourceType.__members__.values():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {number}")
    kind = ResourceType(number)
    if kind not in (ResourceType.TOPIC, ResourceType.BROKER):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Configs of type {kind.name} can't be changed on this broker."
        )
    return kind


def check_entries(entries: Sequence[tuple[str, str | None, bool]]) -> None:
    """Name, value and whether it needs one. Raises KafkaError(INVALID_REQUEST)."""
    if len({name for name, _, _ in entries}) != len(entries):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [name for name, value, needed in entries if needed and value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
