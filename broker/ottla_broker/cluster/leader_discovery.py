"""What other brokers know of leaders, asked for by one that the controller can't be expected to tell any more.

Nothing is led or followed because of it: that is the controller's to say. Clients are told, so that those who know no
other broker find the leaders that there are by now.
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

log = get_logger()

_SECONDS: Final = 1.0
_MOST_TOPICS: Final = 500
"""Of how many topics one question is."""


async def discover_leaders(
    metadata: MetadataCache,
    peers: Peers,
    own_id: int,
    topics: Collection[str],
    take: Callable[[MetadataResponseTopic], None],
) -> None:
    """Ask each other broker that answers of these topics; ``take`` is given what it says of each."""
    wanted = [MetadataRequestTopic(name=name) for name in sorted(topics)[:_MOST_TOPICS]]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    for broker in [each for each in metadata.brokers if each != own_id and each not in metadata.unreachable]:
        try:
            answer = await peers.request(broker, request, timeout=_SECONDS)
        except PeerError as error:
            log.debug("a broker could not be asked of leaders", broker=broker, reason=str(error))
            continue
        for topic in answer.topics:
            if not topic.error_code:
                take(topic)
