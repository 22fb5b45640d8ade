"""Checks that both APIs for altering configs share, with the messages of Kafka's ``ConfigAdminManager``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from ottla_broker.controller.api import Outcome, ResourceType
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError

TWICE: Final = Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


class Resource(Protocol):
    """A resource in a request of either API."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
A = TypeVar("A")


async def answer_each(
    resources: Sequence[R], alter: Callable[[R], Awaitable[Outcome]], answer: Callable[..., A]
) -> list[A]:
    """Alter the resources in order and make an ``answer`` for each; a resource named twice is refused."""
    counts = Counter((r.resource_type, r.resource_name) for r in resources)
    answers = []
    for resource in resources:
        await pause(5)
        twice = counts[resource.resource_type, resource.resource_name] > 1
        outcome = TWICE if twice else await alter(resource)
        answers.append(
            answer(
                error_code=outcome.error,
                error_message=outcome.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return answers


def supported_kind(number: int) -> ResourceType:
    """The kind of a resource whose configs can change. Raises KafkaError(INVALID_REQUEST) for others."""
    if number not in ResourceType.__members__.values() or number == ResourceType.UNKNOWN:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {number}")
    kind = ResourceType(number)
    if kind is ResourceType.BROKER_LOGGER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Configs of type {kind.name} can't be changed on this broker."
        )
    return kind


def check_allowed(ctx: RequestContext, kind: ResourceType, name: str) -> None:
    """Raise KafkaError unless the client may change the configs of a topic, a group, or what is the cluster's."""
    if kind is ResourceType.TOPIC:
        ctx.check(AclResource.TOPIC, name)
    elif kind is ResourceType.GROUP:
        ctx.check(AclResource.GROUP, name)
    else:
        ctx.check(AclResource.CLUSTER)


def check_entries(entries: Sequence[tuple[str, str | None, bool]]) -> None:
    """Check each name, its value, and whether it needs one. Raises KafkaError(INVALID_REQUEST)."""
    if len({name for name, _, _ in entries}) != len(entries):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [name for name, value, needed in entries if needed and value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}")
