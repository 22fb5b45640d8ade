"""The rebalancing handlers of the 2012 coordinator: which steps give each partition of a group one owner.

Each handler works off a queue of groups. A group that is being rebalanced stays with its handler
(``current_rebalancer``), so that no two handlers work on one group at once; a group that waits already
(``rebalance_initiated``) isn't queued again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.coordinator.push.assignment import (
    Assignment,
    Need,
    TopicPartition,
    in_shares,
    rebalance_need,
    thread_id,
    threads_in_order,
)
from ottla_broker.coordinator.push.nodes import GroupNodes, consumer_of
from ottla_broker.coordinator.push.purgatory import RequestPurgatory
from ottla_broker.coordinator.push.registry import Attempt, ConsumerRegistry, GroupRegistry
from ottla_broker.coordinator.push.states import GroupState
from ottla_broker.coordinator.push.subscription import PushSubscription
from ottla_broker.coordinator.push.topic_listeners import TopicListeners
from ottla_broker.events import get_logger
from ottla_broker.store.api import StoreError
from ottla_broker.tasks import Tasks, YieldEvery
from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.push import (
    LARGEST,
    SMALLEST,
    Broker,
    Ownership,
    PartitionOffset,
    StartFetcherRequest,
    StopFetcherRequest,
    answer_limit,
)

_log = get_logger()

_PORTION: Final = 1_000
"""How many names, streams or partitions are handled before other callbacks get their turn: some milliseconds."""
_MOST_AT_ONCE: Final = 5_000
"""A request that gives more partitions is made in a thread: each takes some microseconds."""
_CONSUMER: Final = 10
"""A consumer that is sent a message counts as so many."""

_QUIET_FOR_EACH: Final = 0.000_5
_MOST_QUIET: Final = 1.0
"""Seconds without a registration for each consumer of a group, and at most, before the group is rebalanced."""
_MOST_JOINING: Final = 5.0


@dataclass(frozen=True, slots=True)
class RebalanceSettings:
    """``coordinator.rebalance.…``."""

    handlers: int
    max_retries: int
    backoff_seconds: float


class _Plan(NamedTuple):
    """The outcome of steps 1 to 3."""

    members: list[ConsumerRegistry]
    wanted: Assignment
    shares: dict[ConsumerRegistry, dict[TopicPartition, str]]
    before: Mapping[TopicPartition, str | None]
    need: Need | None


class _Failed(Exception):
    """An attempt to rebalance a group has failed; the message says why."""


@dataclass(eq=False)
class Rebalancer:
    """The handlers, with what the coordinator provides. Owned by the loop thread.

    ``brokers`` are those to fetch from; ``may_read``: whether a consumer may read a topic; ``topics`` lists topics, and
    watches those that consumers read; ``failed`` removes a consumer that keeps the group from rebalancing, ``empty`` a
    group whose last consumer has gone.

    Attributes:
        rebalances: how many have been completed, for logs and tests.
    """

    _settings: RebalanceSettings
    _clock: Clock
    _nodes: GroupNodes
    _stops: RequestPurgatory
    _starts: RequestPurgatory
    _brokers: Callable[[], tuple[Broker, ...]]
    _may_read: Callable[[ConsumerRegistry, str], bool]
    _topics: TopicListeners
    _failed: Callable[[ConsumerRegistry, str], None]
    _empty: Callable[[GroupRegistry], None]
    _queues: list[asyncio.Queue[GroupRegistry]] = field(default_factory=list, init=False)
    _next: int = field(default=0, init=False)
    _tasks: Tasks = field(default_factory=Tasks, init=False)
    rebalances: int = field(default=0, init=False)

    def start(self) -> None:
        self._queues = [asyncio.Queue() for _ in range(self._settings.handlers)]
        for index in range(len(self._queues)):
            self._tasks.start(self._run(index))

    async def close(self) -> None:
        await self._tasks.close()
        self._queues = []

    def add(self, group: GroupRegistry) -> None:
        """``addRebalanceRequest``: queue a group, unless it is queued already."""
        if group.rebalance_initiated or not self._queues:
            return
        group.rebalance_initiated = True
        if group.current_rebalancer is None:
            group.current_rebalancer = self._next
            self._next = (self._next + 1) % len(self._queues)
        self._queues[group.current_rebalancer].put_nowait(group)

    def _add_again(self, group: GroupRegistry, queues: object) -> None:
        """Queue a group after its pause, unless its coordinator has resigned: others have its consumers now."""
        if queues is self._queues:
            self.add(group)

    async def _run(self, index: int) -> None:
        queue = self._queues[index]
        while True:
            group = await queue.get()
            group.rebalance_initiated = False
            if group.again is not None:
                group.again.cancel()
                group.again = None
            again: float | None = None
            try:
                again = await self._rebalance(group)
            except Exception as error:
                # A defect must not end the handler, which other groups use.
                _log.error("a rebalance failed unexpectedly", group=group.group_id, exc_info=error)
                if group.state is not GroupState.IDLE:
                    group.move(GroupState.IDLE)
                again = self._settings.backoff_seconds
            if again is not None:
                # The group stays with this handler, which works for others meanwhile.
                group.again = self._clock.call_later(again, self._add_again, group, self._queues)
            elif not group.rebalance_initiated:
                group.current_rebalancer = None

    async def _rebalance(self, group: GroupRegistry) -> float | None:
        """One attempt. Returns the seconds after which the group must be tried again, None if it is done."""
        if not group.members:
            group.move(GroupState.IDLE)
            return await self._retire(group)
        joining = self._more_may_join(group)
        if joining > 0:
            return joining
        changes = group.changes
        group.move(GroupState.COMPUTING)
        try:
            wait = await self._waits_for_members(group)
            if wait is not None:
                group.move(GroupState.IDLE)
                return wait
            await self._nodes.claim(group.group_id)
            plan = await self._plan(group)
            if plan.need is not None:
                await self._carry_out(group, plan)
                self.rebalances += 1
                _log.info(
                    "a consumer group was rebalanced",
                    group=group.group_id,
                    consumers=len(plan.members),
                    partitions=len(plan.wanted),
                    reason=plan.need.value,
                )
        except (_Failed, StoreError, LocalProtocolError) as error:
            return self._back_off(group, str(error), fast=group.changes != changes)
        finally:
            group.attempt = None
        group.retries = 0
        group.move(GroupState.IDLE)
        return None

    async def _retire(self, group: GroupRegistry) -> float | None:
        """Store what the last consumer has read, and remove the group, unless a consumer has come meanwhile.

        While consumers of an earlier coordinator may still come, their owners stay, and the group with them.

        A removed group is neither queued nor planned: it would remove the nodes of the next group with its id.
        """
        try:
            await commit_offsets(self._nodes, group)
            left = group.awaited_until - self._clock.monotonic() if group.awaited else 0.0
            if left > 0:
                return left
            await self._nodes.remove_owners(group.group_id)
            await self._nodes.release(group.group_id)
        except StoreError as error:
            _log.warning("a group's nodes can't be written now", group=group.group_id, reason=str(error))
            return self._settings.backoff_seconds
        if group.members or group.rebalance_initiated:
            return 0.0
        self._empty(group)
        return None

    def _back_off(self, group: GroupRegistry, problem: str, *, fast: bool) -> float | None:
        """Step 5: "wait for config.rebalanceBackoffMs and retry rebalancing again"."""
        if not group.members:
            group.move(GroupState.IDLE)
            return 0.0
        group.move(GroupState.BACKING_OFF)
        if fast:
            # A consumer has failed and is out of the group: the next attempt doesn't need it.
            return 0.0
        group.retries += 1
        _log.info("a rebalance is tried again", group=group.group_id, reason=problem, retries=group.retries)
        if group.retries <= self._settings.max_retries:
            return self._settings.backoff_seconds
        group.retries = 0
        silent = [each for each in group.members.values() if each.assigned is None or not each.confirmed]
        unanswered = [each for each in silent if self._owes(each)]
        _log.error(
            "ConsumerRebalanceFailedException: the group can't rebalance; consumers that don't answer are removed",
            group=group.group_id,
            retries=self._settings.max_retries,
            reason=problem,
            removed=[each.consumer_id for each in unanswered][:10],
        )
        for consumer in unanswered:
            self._failed(consumer, "it didn't answer while its group was rebalanced")
        return 0.0 if unanswered else self._settings.backoff_seconds

    def _owes(self, consumer: ConsumerRegistry) -> bool:
        return self._stops.owes(consumer) or self._starts.owes(consumer)

    def _more_may_join(self, group: GroupRegistry) -> float:
        """Seconds to wait before a rebalance, because consumers register one after another.

        A rebalance stops everyone, so a large group waits until none has registered for a moment.
        """
        now = self._clock.monotonic()
        if group.joining_since is None:
            group.joining_since = now
        quiet_at = group.joined_at + min(_MOST_QUIET, len(group.members) * _QUIET_FOR_EACH)
        left = min(quiet_at, group.joining_since + _MOST_JOINING) - now
        if left <= 0:
            group.joining_since = None
        return left

    async def _waits_for_members(self, group: GroupRegistry) -> float | None:
        """Seconds to wait for consumers of an earlier coordinator to register again; None: there are none."""
        if group.awaited is None:
            owners = await self._nodes.owners(group.group_id)
            group.read_before = {each: consumer_of(owner) for each, owner in owners.items() if owner}
            group.awaited = set(group.read_before.values())
            longest = max((each.session_seconds for each in group.members.values()), default=0.0)
            group.awaited_until = self._clock.monotonic() + longest
        group.awaited -= group.members.keys()
        if not group.awaited:
            return None
        left = group.awaited_until - self._clock.monotonic()
        if left <= 0:
            _log.info(
                "consumers of an earlier coordinator have not registered again",
                group=group.group_id,
                consumers=sorted(group.awaited)[:10],
            )
            group.awaited = set()
            return None
        return left

    # The steps, with the design's text.

    async def _plan(self, group: GroupRegistry) -> _Plan:
        """Steps 1 to 3."""
        yields = YieldEvery(_PORTION)
        members = list(group.members.values())
        # 1. Get the topics that are interested by the group. For each topic:
        known = await self._topics.names()
        in_order: dict[PushSubscription, list[ConsumerRegistry]] = {}
        for each in sorted(members, key=_first_thread):
            in_order.setdefault(each.subscription, []).append(each)
        await yields.worked(len(members))
        readers: dict[str, list[PushSubscription]] = {}
        for subscription in in_order:
            topics = await _topics_among(known, subscription, yields)
            for topic in topics:
                readers.setdefault(topic, []).append(subscription)
            if subscription.users:
                self._topics.follow(subscription, frozenset(topics))
            await yields.worked(len(topics))
        wanted: Assignment = {}
        shares: dict[ConsumerRegistry, dict[TopicPartition, str]] = {each: {} for each in members}
        for topic, subscriptions in readers.items():
            # 1.1. Get the number of partitions by reading from ZK
            partitions = await self._nodes.partitions(topic)
            # 1.2. Get the number of threads for each topic from the meta information of consumers in the group
            found = threads_in_order(self._readers(topic, subscriptions, in_order))
            threads: list[tuple[str, ConsumerRegistry]] = []
            while len(threads) < len(partitions):
                more = list(islice(found, min(_PORTION, len(partitions) - len(threads))))
                if not more:
                    break
                threads += more
                await yields.worked(len(more))
            # 1.3. Compute the new ownership assignment for the topic
            for number, (thread, consumer) in in_shares(partitions, threads):
                wanted[topic, number] = shares[consumer][topic, number] = thread
            await yields.worked(10 + len(partitions))
        # 3. Check if a rebalance is necessary by trying to get the current ownership from ZK for each topic.
        before = await self._nodes.owners(group.group_id)
        started = all(each.confirmed and each.assigned == share for each, share in shares.items())
        return _Plan(members, wanted, shares, before, rebalance_need(wanted, before, started))

    def _readers(
        self,
        topic: str,
        subscriptions: Sequence[PushSubscription],
        in_order: Mapping[PushSubscription, Sequence[ConsumerRegistry]],
    ) -> Iterator[tuple[ConsumerRegistry, str, int]]:
        """The consumers that read a topic and may, in order, with their ids and numbers of streams."""
        consumers: Iterable[ConsumerRegistry] = in_order[subscriptions[0]]
        if len(subscriptions) > 1:
            consumers = merge(*(in_order[each] for each in subscriptions), key=_first_thread)
        # Of consumers, whose connections have no login, the address alone makes a difference.
        may_read: dict[str, bool] = {}
        for consumer in consumers:
            host = consumer.channel.client_host
            if host not in may_read:
                may_read[host] = self._may_read(consumer, topic)
            if may_read[host]:
                yield consumer, consumer.consumer_id, consumer.subscription.streams_of(topic)

    async def _carry_out(self, group: GroupRegistry, plan: _Plan) -> None:
        """Step 4. Raises _Failed, StoreError."""
        # 4.1 For each consumer in the group, send the StopFetcherRequest
        group.move(GroupState.STOPPING)
        attempt = group.attempt = Attempt(set(plan.members))
        yields = YieldEvery(_PORTION)
        for consumer in plan.members:
            self._check(attempt, consumer)
            consumer.assigned = None
            consumer.confirmed = False
            self._stops.watch(consumer, attempt)
            consumer.channel.send(StopFetcherRequest(consumer.consumer_id).encode())
            await yields.worked(_CONSUMER)
        # 4.2 Then wait until all the StopFetcherReponse have been received or a timeout has expired
        await self._wait(attempt)
        group.read_before.clear()
        # 4.3 Enforce committing the current consumed offsets information to Zookeeper
        group.move(GroupState.COMMITTING)
        attempt = group.attempt = Attempt(set(plan.members))
        await commit_offsets(self._nodes, group)
        async with group.storing:
            offsets, malformed = await self._nodes.offsets(group.group_id, plan.wanted)
            group.stored = dict(offsets)
        # 4.4 For each consumer in the group, send the StartFetcherRequest
        group.move(GroupState.STARTING)
        brokers = self._brokers()
        for consumer in plan.members:
            share = plan.shares[consumer]
            if len(share) <= _MOST_AT_ONCE:
                frame = _start_request(consumer, share, offsets, malformed, plan.before, brokers)
            else:
                frame = await asyncio.to_thread(
                    _start_request, consumer, share, offsets, malformed, plan.before, brokers
                )
            self._check(attempt, consumer)
            consumer.assigned = share
            consumer.reading = frozenset(share)
            consumer.channel.limit = answer_limit(len(share))
            self._starts.watch(consumer, attempt)
            consumer.channel.send(frame)
            await yields.worked(_CONSUMER + len(share))
        # 4.5 Then wait until all the StartFetcherReponse have been received or a timeout has expired
        await self._wait(attempt)
        # 4.6 Update the new assignment of partitions to consumers in the Zookeeper
        group.move(GroupState.RECORDING)
        await self._nodes.store_owners(group.group_id, plan.wanted, plan.before)

    def _check(self, attempt: Attempt, consumer: ConsumerRegistry) -> None:
        if attempt.problem:
            raise _Failed(attempt.problem)
        if not consumer.alive:
            raise _Failed(f"consumer {consumer.consumer_id} has gone")

    async def _wait(self, attempt: Attempt) -> None:
        """``waitForAllResponses``: the purgatories complete the attempt, or let it fail at its deadline."""
        await attempt.done.wait()
        if attempt.problem:
            raise _Failed(attempt.problem)


async def commit_offsets(nodes: GroupNodes, group: GroupRegistry) -> None:
    """Store the offsets that the group's consumers have reported. Raises StoreError; they are kept then."""
    async with group.storing:
        offsets, group.offsets = group.offsets, {}
        changed = {each: offset for each, offset in offsets.items() if group.stored.get(each) != offset}
        if not changed:
            return
        try:
            await nodes.store_offsets(group.group_id, changed)
        except BaseException:
            group.offsets = {**changed, **group.offsets}
            raise
        group.stored.update(changed)


def _first_thread(consumer: ConsumerRegistry) -> str:
    return thread_id(consumer.consumer_id, 0)


async def _topics_among(
    known: frozenset[str], subscription: PushSubscription, yields: YieldEvery
) -> list[str]:
    """The topics that a subscription's consumers read, in turns."""
    if subscription.matches is None:
        await yields.worked(len(subscription.streams))
        return list(subscription.among(known))
    topics: list[str] = []
    names = iter(known)
    while piece := list(islice(names, _PORTION)):
        topics += subscription.among(piece)
        await yields.worked(len(piece))
    return topics


def _start_request(
    consumer: ConsumerRegistry,
    share: Mapping[TopicPartition, str],
    offsets: Mapping[TopicPartition, int],
    malformed: Collection[TopicPartition],
    before: Mapping[TopicPartition, str | None],
    brokers: tuple[Broker, ...],
) -> bytes:
    """The frame of a StartFetcherRequest. Raises LocalProtocolError for a share that is too large for one.

    A partition that a topic got since the group's last rebalance begins with its first record.
    """
    reset = SMALLEST if consumer.smallest else LARGEST
    threads: dict[str, list[PartitionOffset]] = {}
    for partition, thread in share.items():
        if partition not in malformed:
            is_new = partition not in before and (partition[0], 0) in before
            begin = offsets.get(partition, SMALLEST if is_new else reset)
            threads.setdefault(thread, []).append(PartitionOffset(*partition, begin))
    request = StartFetcherRequest(
        consumer.consumer_id,
        tuple(Ownership(thread, tuple(parts)) for thread, parts in threads.items()),
        brokers,
    )
    return request.encode()
