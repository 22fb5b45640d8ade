"""The 2012 coordinator: registers consumers, notices when they fail, and has their groups rebalanced.

Names in quotes are those of the design, which docs/decisions/0021 completes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.coordinator.push.abandoned import remove_abandoned_owners
from ottla_broker.coordinator.push.nodes import GroupNodes
from ottla_broker.coordinator.push.purgatory import RequestPurgatory, Watcher
from ottla_broker.coordinator.push.rebalancer import Rebalancer, RebalanceSettings, commit_offsets
from ottla_broker.coordinator.push.registry import Channel, ConsumerRegistry, GroupRegistry
from ottla_broker.coordinator.push.subscription import PushSubscription, Subscriptions
from ottla_broker.coordinator.push.topic_listeners import TopicListeners
from ottla_broker.coordinator.zookeeper_offsets import may_name_group
from ottla_broker.events import get_logger
from ottla_broker.store.api import Store, StoreError
from ottla_broker.tasks import Tasks, YieldEvery, unhurried
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.push import (
    CONFIRMATION,
    MAX_NAME,
    Broker,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    StartFetcherResponse,
    StopFetcherResponse,
)

_log = get_logger()

_PINGS_IN_A_ROW: Final = 200
_TOPICS_IN_A_ROW: Final = 1_000
"""Names that are compared with subscriptions in one turn of the event loop."""
_SHORT: Final = 500
"""A subscription of so many characters is parsed at once."""
MOST_COMMITS: Final = 100
"""Commits of one consumer that may wait to be stored. A client waits for each; one that sends more is dropped."""
_RELEASE_SECONDS: Final = 5.0
_RESERVED: Final = frozenset({"coordinator", ".", ".."})
"""Names below ``/consumers`` that can't be groups."""


@dataclass(frozen=True, slots=True)
class PushSettings:
    """``coordinator.…``."""

    rebalance: RebalanceSettings
    min_session_ms: int
    max_session_ms: int
    max_failed_pings: int
    commit_interval_seconds: float
    max_consumers: int


@dataclass(frozen=True, slots=True)
class PushEnvironment:
    """The other parts of the broker, as far as the coordinator learns from them.

    Attributes:
        brokers: the brokers to fetch from.
        held_by: what holds a group among the members that coordinate through this broker, None if nothing does;
            ``held_elsewhere``: through another broker.
        may_join: whether a client may read in a group; ``may_read``: whether it may read a topic.
        broker_id: this broker.
    """

    brokers: Callable[[], tuple[Broker, ...]]
    held_by: Callable[[str], str | None]
    held_elsewhere: Callable[[str], Awaitable[str | None]]
    may_join: Callable[[Channel, str], bool]
    may_read: Callable[[Channel, str], bool]
    broker_id: int


class PushCoordinator:
    """Owned by the loop thread. Started whenever this broker is elected, and stopped when it resigns.

    Attributes:
        groups: the groups with consumers, by id.
    """

    def __init__(
        self, settings: PushSettings, clock: Clock, store: Store, environment: PushEnvironment
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environment = environment
        self.groups: dict[str, GroupRegistry] = {}
        self._consumers: dict[Channel, ConsumerRegistry] = {}
        self._nodes = GroupNodes(store, environment.broker_id)
        self._taking: dict[str, asyncio.Future[KafkaError | None]] = {}
        self._pings = RequestPurgatory(clock, self._ping_expired)
        self._stops = RequestPurgatory(clock, self._fetcher_request_expired)
        self._starts = RequestPurgatory(clock, self._fetcher_request_expired)
        self._topics = TopicListeners(store, clock, self._nodes, self._topics_changed)
        self._subscriptions = Subscriptions()
        self._parsing = asyncio.Lock()
        self.rebalancer = Rebalancer(
            settings.rebalance,
            clock,
            self._nodes,
            self._stops,
            self._starts,
            environment.brokers,
            lambda consumer, topic: environment.may_read(consumer.channel, topic),
            self._topics,
            self._failed,
            self._remove_group,
        )
        self._schedule: list[tuple[float, int, ConsumerRegistry]] = []
        self._serial = 0
        self._timer: TimerHandle | None = None
        self._tasks = Tasks()
        self._running = False

    @property
    def consumers(self) -> int:
        """The number of registered consumers."""
        return len(self._consumers)

    def start(self) -> None:
        """Start, as the design's "coordinatorStartup"."""
        self._running = True
        self._topics.start()
        self._tasks.start(self._commit_regularly())
        self._tasks.start(remove_abandoned_owners(self._nodes, self._clock, self.groups.__contains__))
        self.rebalancer.start()

    async def stop(self) -> None:
        """Forget all groups, and close the consumers' connections, so that they look for another coordinator.

        Offsets that were not stored yet are lost, as after a crash: another broker may be the coordinator already.
        """
        self._running = False
        await self.rebalancer.close()
        await self._tasks.close()
        for consumer in self._consumers.values():
            self._give_back(consumer.subscription)
        await self._topics.close()
        for purgatory in (self._pings, self._stops, self._starts):
            purgatory.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule.clear()
        consumers, self._consumers = self._consumers, {}
        self.groups = {}
        for channel, consumer in consumers.items():
            consumer.alive = False
            channel.close("")
        try:
            async with self._clock.timeout(_RELEASE_SECONDS):
                await self._nodes.release_all()
        except (StoreError, TimeoutError) as error:
            _log.info("the end of the session removes the nodes of groups", reason=str(error))
        self._nodes.forget_claims()

    async def store_offsets(self) -> None:
        """Store what consumers have reported, before a stop. A failure is logged."""
        for group in tuple(self.groups.values()):
            await self._commit(group)

    # Registration

    async def register(self, channel: Channel, request: RegisterConsumerRequest) -> None:
        """Make a consumer a member of its group; "handleNewGroup" and "handleNewConsumer".

        Raises KafkaError: the consumer isn't registered. Its code and text are the response.
        """
        if channel in self._consumers:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "this connection has registered a consumer already")
        self._check(channel, request)
        subscription = await self._subscription(request.topic_count)
        try:
            await self._join(channel, request, subscription)
        except BaseException:
            self._give_back(subscription)
            raise

    async def _subscription(self, text: str) -> PushSubscription:
        """Count in a consumer's subscription. Raises KafkaError.

        Long ones are parsed one in a turn of the event loop, however many come at once.
        """
        if len(text) <= _SHORT:
            return self._subscriptions.take(text)
        async with self._parsing:
            await asyncio.sleep(0)
            return self._subscriptions.take(text)

    def _give_back(self, subscription: PushSubscription) -> None:
        """A consumer with a subscription has gone, or was not registered."""
        if self._subscriptions.give_back(subscription):
            self._topics.follow(subscription, frozenset())

    async def _join(
        self, channel: Channel, request: RegisterConsumerRequest, subscription: PushSubscription
    ) -> None:
        """Make a consumer with a valid subscription a member. Raises KafkaError."""
        async for topic in unhurried(subscription.streams):
            if not self._environment.may_read(channel, topic):
                raise KafkaError(
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"not authorized to read topic {topic}"
                )
        if request.group_id not in self.groups:
            await self._take_on(request.group_id)
        if not self._running:
            raise _not_coordinator()
        group = self.groups.get(request.group_id)
        if group is not None and request.consumer_id in group.members:
            taken = group.members[request.consumer_id].channel.peer
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                f"consumer id {request.consumer_id} is taken in group {request.group_id} by the consumer at {taken};"
                " close that one, or use another id",
            )
        if group is None:
            group = self.groups[request.group_id] = GroupRegistry(request.group_id)
        consumer = ConsumerRegistry(
            request.group_id,
            request.consumer_id,
            subscription,
            request.auto_commit,
            request.auto_offset_reset == "smallest",
            request.session_timeout_ms / 1000,
            channel,
        )
        group.members[consumer.consumer_id] = consumer
        group.joined_at = self._clock.monotonic()
        self._consumers[channel] = consumer
        # Its topics are read, and watched, by the rebalance that follows the answer.
        self._plan_ping(consumer)

    async def _take_on(self, group_id: str) -> None:
        """Make sure that a group that isn't here has no consumers elsewhere. Raises KafkaError.

        Many consumers of a group register at once, and the store is asked once.
        """
        taking = self._taking.get(group_id)
        if taking is not None:
            refusal = await asyncio.shield(taking)
        else:
            taking = self._taking[group_id] = asyncio.get_running_loop().create_future()
            refusal = _not_coordinator()
            try:
                refusal = await self._refusal(group_id)
            finally:
                del self._taking[group_id]
                taking.set_result(refusal)
        if refusal is not None:
            raise KafkaError(refusal.code, refusal.message)

    async def _refusal(self, group_id: str) -> KafkaError | None:
        """Return why a group can't be taken on. None: this coordinator holds it now, and other brokers know."""
        environment = self._environment
        try:
            members = await self._nodes.zookeeper_members(group_id)
            if members:
                return _held(group_id, f"{len(members)} consumers that coordinate in ZooKeeper")
            holder = environment.held_by(group_id) or await environment.held_elsewhere(group_id)
            if holder is not None:
                return _held(group_id, holder)
            await self._nodes.claim(group_id)
            # A member may have come to this broker meanwhile.
            holder = environment.held_by(group_id)
            if holder is None and self._running:
                return None
            await self._nodes.release(group_id)
        except StoreError as error:
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        return _not_coordinator() if holder is None else _held(group_id, holder)

    def registered(self, channel: Channel) -> None:
        """The consumer has its answer: its group rebalances."""
        consumer = self._consumers.get(channel)
        if consumer is not None:
            self.rebalancer.add(self.groups[consumer.group_id])

    def _check(self, channel: Channel, request: RegisterConsumerRequest) -> None:
        """Raise KafkaError for a registration that can't be accepted."""
        group_id, consumer_id, session = request.group_id, request.consumer_id, request.session_timeout_ms
        settings = self._settings
        if not self._running:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, "this broker is not the coordinator; look for it again"
            )
        if not may_name_group(group_id) or group_id in _RESERVED or len(group_id.encode()) > MAX_NAME:
            raise KafkaError(
                ErrorCode.INVALID_GROUP_ID,
                f"group id {group_id[:80]!r} can't name a node in ZooKeeper, or is reserved; use another",
            )
        if not self._environment.may_join(channel, group_id):
            raise KafkaError(
                ErrorCode.GROUP_AUTHORIZATION_FAILED, f"not authorized to read in group {group_id}"
            )
        if not consumer_id or len(consumer_id.encode()) > MAX_NAME or not consumer_id.isprintable():
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a consumer id has 1 to {MAX_NAME} printable bytes, not {consumer_id[:80]!r}",
            )
        if request.auto_offset_reset not in ("smallest", "largest"):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"auto_offset_reset is {request.auto_offset_reset[:80]!r}; it must be smallest or largest",
            )
        if not settings.min_session_ms <= session <= settings.max_session_ms:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session_timeout_ms is {session}; this broker allows {settings.min_session_ms}"
                f" (coordinator.min.session.timeout.ms) to {settings.max_session_ms} (group.max.session.timeout.ms)",
            )
        if len(self._consumers) >= settings.max_consumers:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"there are {settings.max_consumers} consumers already (coordinator.max.consumers)",
            )

    # Responses

    def handle(
        self, channel: Channel, response: PingResponse | StopFetcherResponse | StartFetcherResponse
    ) -> None:
        """A consumer's response; the connection closes if the consumer can't have sent it."""
        consumer = self._consumers.get(channel)
        if consumer is None:
            channel.close("it has not registered a consumer")
            return
        if response.consumer_id != consumer.consumer_id:
            self._failed(consumer, f"it answered for another consumer, {response.consumer_id[:80]!r}")
            return
        if not isinstance(response, StartFetcherResponse):
            self._record(consumer, response.offsets)
        if isinstance(response, PingResponse):
            self._ping_answered(consumer, response)
            return
        purgatory = self._stops if isinstance(response, StopFetcherResponse) else self._starts
        watcher = purgatory.answered(consumer)
        if watcher is None:
            # Late, or sent twice: no one waits for it.
            return
        if response.error_code:
            self._failed(
                consumer, f"it answered a {response.type.name} request with error {response.error_code}"
            )
            return
        if isinstance(response, StopFetcherResponse):
            consumer.reading = frozenset()
        elif consumer.assigned is not None:
            consumer.confirmed = True
        if watcher.attempt is not None:
            watcher.attempt.answered(consumer)

    def _record(self, consumer: ConsumerRegistry, offsets: Sequence[PartitionOffset] | None) -> None:
        """Keep the offsets of partitions that the consumer reads; a late answer may have others, which others own.

        A consumer of an earlier coordinator reports where it was when that died, which the store may not have.
        """
        if not offsets:
            return
        group = self.groups[consumer.group_id]
        for topic, partition, offset in offsets:
            place = topic, partition
            if offset >= 0 and (
                place in consumer.reading or group.read_before.get(place) == consumer.consumer_id
            ):
                group.offsets[place] = offset

    def _ping_answered(self, consumer: ConsumerRegistry, response: PingResponse) -> None:
        if response.error_code:
            self._failed(consumer, f"it answered a ping with error {response.error_code}")
            return
        # A consumer without automatic commits sends offsets only to commit; others send a response too many.
        commits = response.offsets is not None and not consumer.auto_commit
        if not commits and self._pings.owes(consumer):
            self._pings.answered(consumer)
            consumer.failed_pings = 0
        elif response.offsets is not None:
            self._commit_for(consumer)

    def _commit_for(self, consumer: ConsumerRegistry) -> None:
        """A consumer commits: store its offsets, and say so by a ping.

        One write of a group is under way; the next one is for all who have come meanwhile.
        """
        group = self.groups[consumer.group_id]
        waiting = group.commits.get(consumer, 0) + 1
        if waiting > MOST_COMMITS:
            self._failed(consumer, f"{MOST_COMMITS} of its commits wait to be stored already")
            return
        group.commits[consumer] = waiting
        if not group.committing:
            group.committing = True
            self._tasks.start(self._commit_as_asked(group))

    async def _commit_as_asked(self, group: GroupRegistry) -> None:
        try:
            while group.commits and self._running:
                asked, group.commits = group.commits, {}
                stored = await self._commit(group)
                for consumer, count in asked.items():
                    if not consumer.alive:
                        continue
                    if not stored:
                        group.commits[consumer] = group.commits.get(consumer, 0) + count
                    else:
                        for _ in range(count):
                            self._send_ping(consumer, CONFIRMATION)
                if not stored:
                    await self._clock.sleep(self._settings.rebalance.backoff_seconds)
        finally:
            group.committing = False

    # Failure detection

    def _plan_ping(self, consumer: ConsumerRegistry) -> None:
        at = self._clock.monotonic() + consumer.session_seconds / 3
        self._serial += 1
        heappush(self._schedule, (at, self._serial, consumer))
        if self._timer is None or self._schedule[0][1] == self._serial:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._schedule:
            left = self._schedule[0][0] - self._clock.monotonic()
            self._timer = self._clock.call_later(max(0.0, left), self._run_schedule)

    def _run_schedule(self) -> None:
        """ "scheduler.run": ping each consumer every third of its session timeout."""
        self._timer = None
        now = self._clock.monotonic()
        for _ in range(_PINGS_IN_A_ROW):
            if not self._schedule or self._schedule[0][0] > now:
                break
            _, _, consumer = heappop(self._schedule)
            if not consumer.alive:
                continue
            # "if the previous request has been responded"
            if not self._pings.waits_for(consumer):
                self._send_ping(consumer, consumer.failed_pings)
            self._serial += 1
            heappush(self._schedule, (now + consumer.session_seconds / 3, self._serial, consumer))
        self._arm()

    def _send_ping(self, consumer: ConsumerRegistry, retries: int) -> None:
        self._pings.watch(consumer)
        if retries:
            frame = PingRequest(consumer.consumer_id, retries).encode()
        elif consumer.ping is None:
            frame = consumer.ping = PingRequest(consumer.consumer_id).encode()
        else:
            frame = consumer.ping
        consumer.channel.send(frame)

    def _ping_expired(self, watcher: Watcher) -> None:
        """ "handlePingRequestExpired": count it, and give the consumer up after too many."""
        consumer = watcher.consumer
        consumer.failed_pings += 1
        if consumer.failed_pings > self._settings.max_failed_pings:
            self._failed(consumer, f"it has not answered {consumer.failed_pings} pings")
        else:
            self._send_ping(consumer, consumer.failed_pings)

    def _fetcher_request_expired(self, watcher: Watcher) -> None:
        """ "handleStopOrStartFetcherRequestExpired"."""
        if watcher.attempt is not None:
            watcher.attempt.fail(f"consumer {watcher.consumer.consumer_id} has not answered in time")

    def disconnected(self, channel: Channel) -> None:
        """A connection has closed: its consumer has left the group."""
        consumer = self._consumers.get(channel)
        if consumer is not None:
            self._failed(consumer, "")

    def _failed(self, consumer: ConsumerRegistry, reason: str) -> None:
        """ "handleConsumerFailure"; without a reason, the consumer has closed its connection."""
        if not consumer.alive:
            return
        consumer.alive = False
        _log.info(
            "a consumer left its group",
            group=consumer.group_id,
            consumer=consumer.consumer_id,
            address=consumer.channel.peer,
            reason=reason or "its connection closed",
        )
        # 1. Remove its ping request task from the scheduler: that skips consumers that have gone.
        for purgatory in (self._pings, self._stops, self._starts):
            purgatory.forget(consumer)
        # 2. Close its corresponding socket.
        self._consumers.pop(consumer.channel, None)
        if reason:
            consumer.channel.close(reason)
        # 3. Remove its registry from its group's member consumer registry list.
        group = self.groups[consumer.group_id]
        del group.members[consumer.consumer_id]
        group.changes += 1
        self._give_back(consumer.subscription)
        # 4. If there is an ongoing rebalance procedure by some of the rebalance handlers, let it fail directly.
        if group.attempt is not None:
            group.attempt.fail(f"consumer {consumer.consumer_id} has left")
        # 5. If the group still has some member consumers, try to rebalance the group; otherwise the handler removes it.
        if len(self._schedule) > 2 * len(self._consumers) + 1000:
            self._schedule = [entry for entry in self._schedule if entry[2].alive]
            heapify(self._schedule)
        self.rebalancer.add(group)

    def _remove_group(self, group: GroupRegistry) -> None:
        if self.groups.get(group.group_id) is group and not group.members:
            del self.groups[group.group_id]

    # Topics and offsets

    async def _topics_changed(self, topics: Mapping[str, bool]) -> None:
        """Topics have come (True), or have other partitions or gone (False)."""
        yields = YieldEvery(_TOPICS_IN_A_ROW)
        new = [topic for topic, is_new in topics.items() if is_new]
        concerned = set()
        for subscription in self._subscriptions:
            found = not subscription.found.isdisjoint(topics)
            for start in range(0, len(new), _TOPICS_IN_A_ROW):
                if found:
                    break
                piece = new[start : start + _TOPICS_IN_A_ROW]
                found = any(map(subscription.count, piece))
                await yields.worked(len(piece))
            if found:
                concerned.add(subscription)
            await yields.worked()
        for group in tuple(self.groups.values()):
            if any(each.subscription in concerned for each in group.members.values()):
                self.rebalancer.add(group)
            await yields.worked(1 + len(group.members) // 10)

    async def _commit_regularly(self) -> None:
        while True:
            await self._clock.sleep(self._settings.commit_interval_seconds)
            await self.store_offsets()

    async def _commit(self, group: GroupRegistry) -> bool:
        try:
            await commit_offsets(self._nodes, group)
        except StoreError as error:
            _log.warning("offsets can't be stored now", group=group.group_id, reason=str(error))
            return False
        return True


def _not_coordinator() -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, "this broker is not the coordinator any longer")


def _held(group_id: str, by: str) -> KafkaError:
    return KafkaError(
        ErrorCode.NON_EMPTY_GROUP,
        f"group {group_id} is held by {by}; close them, or use another group",
    )
