"""What a handler's module says of its API, in one ``API`` at its head.

The memory of a request's elements is limited before they are made: two bytes of a request can become an object of two
hundred. What elements take is estimated by :func:`ottla_protocol.layout.element_cost`. One request may still have more
elements than real clients send: 20,000 partitions with their assignments in CreateTopics, 45,000 topics in Metadata,
30,000 partitions in ListOffsets and OffsetCommit, 65,000 in OffsetFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from ottla_broker.metadata.client_quotas import QuotaKind
from ottla_broker.network.service import Parts
from ottla_broker.requests.turns import CODED, Purpose, Reservation
from ottla_protocol.acls import AclOperation, AclResource

MiB: Final = 1024 * 1024

MOST_ANSWER: Final = 32 * MiB
"""About how many bytes of descriptions an answer has; what is named after that is for the next request."""
DESCRIPTIONS: Final = Reservation(Purpose.DESCRIPTIONS, MOST_ANSWER)
LISTS: Final = Reservation(Purpose.ANSWERS, 16 * MiB)
"""For the answers to a short request for all topics, groups, ids or offsets."""
_IN_PROPORTION: Final = Reservation(Purpose.REQUESTS, 0)

CLUSTER, GROUP, TOPIC = AclResource.CLUSTER, AclResource.GROUP, AclResource.TOPIC
TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

Rules = Mapping[AclResource, AclOperation | None]
"""The operation that an API needs on each type of resource; None needs no check."""

Senders = Literal["clients", "clients and brokers", "brokers and tools", "brokers"]
"""Who sends requests of an API: "clients and brokers" where those of brokers are as large as their share of the
cluster. The last two have no quota, as in Kafka (``ApiKeys.clusterAction``)."""

Feature = Literal["consumer protocol", "share groups", "client telemetry"]
"""What ``group.coordinator.rebalance.protocols`` and ``group.share.enable`` can leave out, and what is there only with
``metrics.listener``, which shows it."""


class Api(NamedTuple):
    """One API. :mod:`ottla_broker.handlers.index` repeats what a broker has to know before it imports the module.

    Attributes:
        versions: the first and the last that are advertised and served.
        senders: requests that "brokers" send are served in clusters only.
        feature: without it, the API isn't served.
        coordinated: it needs a coordinator, which a broker that stands alone loads with the first such request:
            those of transactions, and with ``of_groups`` those of groups.
        needs: the operation on each type of resource (KIP-11, Kafka's ``KafkaApis``). The handler asks for each topic
            or group by :meth:`.context.RequestContext.authorize`, and for other operations by ``may``.
        gate: what the dispatcher asks for before the handler runs, as the response has a single error, for all.
        memory: the bytes that the elements of a request may take; less where all are served in one turn, where the
            answer takes more (to partitions by bare numbers), and where those who aren't brokers are refused.
        quick_bytes: a request of so many bytes is decoded at once, whatever it holds.
        is_decoded_at_once: a larger one is, too, if its elements fit in ``memory``.
        is_bulky: it has records or assignments, and may be larger than other requests.
        answer: what is reserved while an answer is made in turns; nothing where it is in proportion to its request.
        is_carried_out: it may be sent just before a connection closes, and is carried out all the same.
        describes_cluster: a broker that has just started would answer that there are no brokers and no topics, and
            clients would forget the ones they know: librdkafka doesn't recover from that. So it waits.
        quota: of bytes, beside that of the loop's time.
        coded: the work of one slice of an answer, in elements of a handler.
        spread: makes several parts of each field that the handler has built of several pieces.
    """

    key: int
    versions: tuple[int, int]
    senders: Senders = "clients"
    feature: Feature | None = None
    coordinated: bool = False
    of_groups: bool = True
    needs: Rules = MappingProxyType({})
    gate: AclResource | None = None
    memory: int = 8 * MiB
    quick_bytes: int = 4 * 1024
    is_decoded_at_once: bool = False
    is_bulky: bool = False
    answer: Reservation = _IN_PROPORTION
    is_carried_out: bool = False
    describes_cluster: bool = False
    quota: QuotaKind | None = None
    coded: int = CODED
    spread: Callable[[Parts], Parts] | None = None


class Served(NamedTuple):
    """Where and in which versions an API is served: see :class:`Api`."""

    module: str
    min_version: int
    max_version: int
    coordinated: bool = False
    of_groups: bool = True
    in_clusters: bool = False
    feature: Feature | None = None
