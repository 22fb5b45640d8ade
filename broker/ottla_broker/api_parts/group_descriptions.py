"""Parts that ConsumerGroupDescribe and ShareGroupDescribe share, whose answers are made in turns of the loop.

The groups of a request whose answer has :data:`.MOST_ANSWER` bytes are left for another request. A group with a topic
that the client may not describe isn't described.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final, TypeVar

from ottla_broker.requests.api import MOST_ANSWER
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError

_PORTION: Final = 100

G = TypeVar("G")


async def described_groups(
    group_ids: Iterable[str],
    describe: Callable[[str], Coroutine[Any, None, G]],
    size_of: Callable[[G], int],
    make: Callable[..., G],
) -> list[G]:
    """The groups, each once. ``size_of`` estimates a group's bytes; ``make`` is the class of their descriptions."""
    groups: list[G] = []
    size = 0
    for group_id in dict.fromkeys(group_ids):
        if size > MOST_ANSWER:
            # Clients ask again for the groups with this error.
            full = KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "The groups before it fill the response; ask for it again.",
            )
            groups.append(refused(make, group_id, full))
            await pause(1)
            continue
        described = await describe(group_id)
        groups.append(described)
        size += size_of(described)
        await pause(5)
    return groups


def refused(make: Callable[..., G], group_id: str, error: KafkaError) -> G:
    """The description of a group that isn't described."""
    return make(error_code=error.code, error_message=error.message, group_id=group_id)


async def hides(ctx: RequestContext, topics: Collection[str]) -> KafkaError | None:
    """Return why a group with these topics isn't described to the client; None if it may be."""
    for done, name in enumerate(topics, 1):
        if not ctx.shows(AclResource.TOPIC, name):
            return KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
        if done % _PORTION == 0:
            await pause(_PORTION)
    return None
