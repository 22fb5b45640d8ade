"""Sends the items of a call to the right brokers, and retries until each has its outcome.

The controller serves topics, a coordinator its groups, a leader its partitions. A route finds an item's broker, knows
which errors mean that it has moved, and looks it up again. `drive` sends to all brokers at once and retries the items
that may succeed later, as Java's ``AdminApiDriver`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from ottla_protocol.errors import ErrorCode

from ..cluster import CoordinatorType
from ..deadline import Deadline
from ..errors import BrokerError, ClientError, RequestTimeoutError, UnknownTopicError, is_retriable
from ..types import TopicPartition
from .outcomes import error_of

if TYPE_CHECKING:
    from ..cluster import Backoff, Cluster

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Node: TypeAlias = int | None
"""A broker's id; None for any broker."""
Outcomes: TypeAlias = Mapping[K, V | ClientError]
"""The outcome of each item; errors are outcomes, too."""

# Seconds for which an unknown topic is retried, because some brokers learn of a new topic a moment later.
_UNKNOWN_GRACE: Final = 1.0

_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Route(Generic[K]):
    """To any broker. Subclasses override where an item goes."""

    again: frozenset[ErrorCode] = frozenset()
    """The error codes that are worth a retry."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def find(self, keys: Collection[K], deadline: Deadline) -> Mapping[K, Node | ClientError]:
        """The broker of each item, or the error of looking it up."""
        return dict.fromkeys(keys, None)

    def moved(self, key: K, error: ClientError) -> None:
        """The item will be retried after this error: forget its broker."""

    def may_retry(self, error: ClientError) -> bool:
        """Whether to retry: after lost connections always, after error codes if they are in ``again``."""
        return error.code in self.again if isinstance(error, BrokerError) else is_retriable(error)


class ToNodes(Route[K]):
    """To brokers that the caller names, None for any."""

    again = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})

    def __init__(self, cluster: Cluster, node_of: Callable[[K], Node]) -> None:
        super().__init__(cluster)
        self._node_of = node_of

    async def find(self, keys: Collection[K], deadline: Deadline) -> Mapping[K, Node | ClientError]:
        return {key: self._node_of(key) for key in keys}


class ToController(Route[K]):
    """To the controller. On KRaft any broker may be named as the controller, and forwards requests."""

    again = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._lost = False

    async def find(self, keys: Collection[K], deadline: Deadline) -> Mapping[K, Node | ClientError]:
        if self._lost or self.cluster.controller_id is None:
            await self.cluster.fetch_topics((), deadline)
            self._lost = False
        controller = self.cluster.controller_id
        if controller is None:
            error = error_of(ErrorCode.NOT_CONTROLLER, "controller", "the cluster has none at the moment")
            return dict.fromkeys(keys, error)
        return dict.fromkeys(keys, controller)

    def moved(self, key: K, error: ClientError) -> None:
        self._lost = True


class ToCoordinators(Route[str]):
    """To the coordinator of each group, or of each transactional id."""

    again = frozenset(
        {
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        }
    )
    _here = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
    """The codes of a broker that is the coordinator."""

    def __init__(self, cluster: Cluster, kind: CoordinatorType = CoordinatorType.GROUP) -> None:
        super().__init__(cluster)
        self._kind = kind

    async def find(self, keys: Collection[str], deadline: Deadline) -> Mapping[str, Node | ClientError]:
        async def one(key: str) -> Node | ClientError:
            try:
                return await self.cluster.coordinator(key, deadline, self._kind)
            except ClientError as error:
                return error

        return dict(zip(keys, await together([one(key) for key in keys]), strict=True))

    def moved(self, key: str, error: ClientError) -> None:
        if not isinstance(error, BrokerError) or error.code not in self._here:
            self.cluster.forget_coordinator(key, self._kind)


class ToLeaders(Route[TopicPartition]):
    """To the leader of each partition."""

    again = frozenset(
        {
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.OFFSET_NOT_AVAILABLE,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        }
    )

    def __init__(self, cluster: Cluster, *, cached: bool = False) -> None:
        """``cached`` uses the leaders in the cluster's metadata for the first attempt, without looking them up."""
        super().__init__(cluster)
        self._cached = cached
        self._grace = Deadline(_UNKNOWN_GRACE)

    async def find(
        self, keys: Collection[TopicPartition], deadline: Deadline
    ) -> Mapping[TopicPartition, Node | ClientError]:
        if self._cached:
            known = {key: leader for key in keys if (leader := self.cluster.leader(*key)) is not None}
            if len(known) == len(keys):
                return known
        topics = await self.cluster.fetch_topics({key.topic for key in keys}, deadline)

        def leader_of(key: TopicPartition) -> int | ClientError:
            topic = topics.get(key.topic)
            if topic is None or topic.error:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                return error_of(code, f"topic {key.topic}")
            partition = topic.partitions.get(key.partition)
            if partition is None:
                what = f"topic {key.topic} has no partition {key.partition}"
                count = len(topic.partitions)
                has = f"it has {count} partition{'' if count == 1 else 's'}"
                return error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what, has)
            if partition.leader is None:
                return error_of(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {key}")
            return partition.leader

        return {key: leader_of(key) for key in keys}

    def moved(self, key: TopicPartition, error: ClientError) -> None:
        self._cached = False

    def may_retry(self, error: ClientError) -> bool:
        if isinstance(error, BrokerError) and error.code in _UNKNOWN:
            return not self._grace.passed()
        return super().may_retry(error)


Ask: TypeAlias = Callable[[Node, list[K], Deadline], Awaitable[Outcomes[K, V]]]
"""Sends one request for several items to one broker."""


async def drive(
    keys: Collection[K], route: Route[K], ask: Ask[K, V], deadline: Deadline, backoff: Backoff
) -> dict[K, V | ClientError]:
    """An outcome for each item, in order; errors are outcomes, too. Those about unknown topics suggest other names."""
    outcomes: dict[K, V | ClientError] = {}
    reasons: dict[K, ClientError] = {}
    pending = list(dict.fromkeys(keys))
    attempt = 0
    while pending:
        retry: dict[K, ClientError] = {}
        for key, outcome in (await _round(pending, route, ask, deadline)).items():
            if isinstance(outcome, ClientError) and route.may_retry(outcome):
                retry[key] = outcome
                if key not in reasons or not isinstance(outcome, RequestTimeoutError):
                    reasons[key] = outcome  # the last error that says more than a timeout
            else:
                outcomes[key] = outcome
        attempt += 1
        pause = backoff.after(attempt)
        if retry and deadline.left() <= pause:
            outcomes.update({key: _late(reasons[key], attempt) for key in retry})
            break
        pending = list(retry)
        if retry:
            for key, error in retry.items():
                route.moved(key, error)
            await asyncio.sleep(pause)
    return await with_suggestions(
        route.cluster, {key: outcomes[key] for key in dict.fromkeys(keys)}, deadline
    )


async def with_suggestions(
    cluster: Cluster, outcomes: dict[K, V | ClientError], deadline: Deadline
) -> dict[K, V | ClientError]:
    """The outcomes of items by topic, partition or resource; errors about unknown topics suggest similar names."""
    unknown = {
        key: _topic_of(key)
        for key, each in outcomes.items()
        if isinstance(each, UnknownTopicError) and each.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    if unknown:
        similar = await cluster.similar_topics(set(unknown.values()), deadline)
        for key, topic in unknown.items():
            if names := similar.get(topic):
                suggestion = " or ".join(map(repr, names))
                outcomes[key] = UnknownTopicError(f"{outcomes[key]}; is it {suggestion}?")
    return outcomes


def _topic_of(key: object) -> str:
    """The topic of an item: of a partition, or of a resource; or its own name."""
    return key.topic if isinstance(key, TopicPartition) else str(getattr(key, "name", key))


async def _round(
    keys: list[K], route: Route[K], ask: Ask[K, V], deadline: Deadline
) -> dict[K, V | ClientError]:
    """Send each item once, to all brokers at the same time."""
    try:
        found = await route.find(keys, deadline)
    except ClientError as error:
        return dict.fromkeys(keys, error)
    outcomes: dict[K, V | ClientError] = {}
    of_node: dict[Node, list[K]] = {}
    for key in keys:
        node = found[key]
        if isinstance(node, ClientError):
            outcomes[key] = node
        else:
            of_node.setdefault(node, []).append(key)

    async def one(node: Node, its: list[K]) -> Outcomes[K, V]:
        try:
            answers = await ask(node, its, deadline)
        except ClientError as error:
            return dict.fromkeys(its, error)
        missing = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, "broker", "its response leaves out the item")
        return {key: answers.get(key, missing) for key in its}

    for answers in await together([one(node, its) for node, its in of_node.items()]):
        outcomes.update(answers)
    return outcomes


def _late(error: ClientError, attempts: int) -> ClientError:
    if isinstance(error, RequestTimeoutError) and attempts == 1:
        return error
    return RequestTimeoutError(
        f"{error} (no time left after {attempts} {'try' if attempts == 1 else 'tries'})"
    )


async def together(calls: list[Awaitable[V]]) -> list[V]:
    """The results of all calls. If one fails or the caller is cancelled, the others are cancelled."""
    if len(calls) == 1:
        return [await calls[0]]
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions by topic, as requests name them."""
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics
