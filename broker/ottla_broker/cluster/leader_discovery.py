"""Asks other brokers for the current leaders, when the controller may not reach this broker.

The result only goes into the metadata, so that clients that know no other broker find the new leaders. What this broker
leads and follows is for the controller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerError
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

if TYPE_CHECKING:
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.network.peer import Peers

_log = get_logger()

_SECONDS: Final = 1.0
_MOST_TOPICS: Final = 500
"""The most topics in one request."""


async def discover_leaders(
    metadata: MetadataCache,
    peers: Peers,
    own_id: int,
    topics: Collection[str],
    on_topic: Callable[[MetadataResponseTopic], None],
) -> None:
    """Ask every reachable broker for these topics; ``on_topic`` gets each topic of each response."""
    wanted = [MetadataRequestTopic(name=name) for name in sorted(topics)[:_MOST_TOPICS]]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    for broker in [each for each in metadata.brokers if each != own_id and each not in metadata.unreachable]:
        try:
            answer = await peers.request(broker, request, timeout=_SECONDS)
        except PeerError as error:
            _log.debug("a broker could not be asked for leaders", broker=broker, reason=str(error))
            continue
        for topic in answer.topics:
            if not topic.error_code:
                on_topic(topic)
