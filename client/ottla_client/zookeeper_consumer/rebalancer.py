"""One consumer's part in its group: registration and rebalancing, as Kafka's documentation describes them.

No consumer decides for others. Each reads the same nodes, computes the same assignment, and takes its own part of it. A
partition has at most one owner, because ZooKeeper creates a node only once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from ..cluster.tasks import background
from ..deadline import wait_at_most
from ..errors import BadNodeError, ClientError, RebalanceFailedError
from ..types import TopicPartition
from . import paths
from .assignors import Assign, Assignment
from .registry import Registry
from .subscription import Subscription, ThreadId

_log = logging.getLogger("ottla_client")


class Reading(Protocol):
    """The reader of the partitions that the consumer owns."""

    def note(self, sizes: Mapping[str, int]) -> None:
        """The number of partitions of each topic that the group reads: before each rebalance."""

    async def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions, and commit. They are still owned."""

    async def start(self, assigned: Mapping[TopicPartition, ThreadId]) -> None:
        """Read these partitions from now on, each in its stream. Raises ClientError: nothing has changed."""

    def lose(self) -> None:
        """Stop reading at once, without a commit: others may own the partitions."""

    def report(self, error: ClientError) -> None:
        """Raise an error in the application's next call."""


class Rebalancer:
    """Keeps a consumer registered, and its partitions those that the group's assignment gives it.

    Belongs to the event loop's thread. ``owned`` are the partitions with this consumer's name in the owner registry.
    """

    def __init__(
        self,
        registry: Registry,
        reading: Reading,
        *,
        group_id: str,
        consumer_id: str,
        subscription: Subscription,
        assign: Assign,
        exclude_internal: bool,
        max_retries: int,
        backoff_ms: int,
        registration_ms: int,
        now_ms: Callable[[], int],
        wait: Callable[[asyncio.Event, float], Awaitable[bool]] = wait_at_most,
    ) -> None:
        """``registration_ms``: how long another session may keep the consumer's id before that is an error."""
        self._registry = registry
        self._reading = reading
        self._group_id = group_id
        self._consumer_id = consumer_id
        self._subscription = subscription
        self._assign = assign
        self._exclude_internal = exclude_internal
        self._max_retries = max_retries
        self._backoff = backoff_ms / 1000
        self._registration_retries = max(1, -(-registration_ms // backoff_ms))
        self._now_ms = now_ms
        self._wait = wait
        self._triggered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._registered_in: int | None = None
        """The session whose node says that this consumer is a member."""
        self._losses = 0
        """The number of times that the session was lost: a rebalance that began before is void."""
        self.owned: Assignment = {}
        self._doubtful: set[TopicPartition] = set()
        """Partitions whose owner node may be this consumer's although it doesn't read them."""
        self.settled = asyncio.Event()
        """Set after each rebalance that succeeded, until the next trigger."""

    async def start(self) -> None:
        """The registration algorithm, then the first rebalance. Raises ClientError; ``close`` undoes it.

        "When a consumer starts, it does the following:"
        """
        self._registry.on_lost = self._lost
        self._registry.on_session = self.trigger
        # 1. Register itself in the consumer id registry under its group.
        await self._register()
        # 2. Register a watch on changes (new consumers joining or any existing consumers leaving) under the consumer id
        #    registry. (Each change triggers rebalancing among all consumers within the group to which the changed
        #    consumer belongs.)
        # 3. Register a watch on changes (new brokers joining or any existing brokers leaving) under the broker id
        #    registry. (Each change triggers rebalancing among all consumers in all consumer groups.)
        # 4. If the consumer creates a message stream using a topic filter, it also registers a watch on changes (new
        #    topics being added) under the broker topic registry. (Each change will trigger re-evaluation of the
        #    available topics to determine which topics are allowed by the topic filter. A new allowed topic will
        #    trigger rebalancing among all consumers within the consumer group.)
        # ZooKeeper's watches end when they fire, so each rebalance sets them again as it reads the nodes.
        # 5. Force itself to rebalance within in its consumer group.
        await self._rebalance_until_done()
        self._task = background(self._keep(), f"the rebalancer of consumer {self._consumer_id}")

    async def close(self) -> None:
        """Stop reading, release all partitions and leave the group, as far as ZooKeeper can be reached."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._reading.stop(tuple(self.owned))
        await self._release((*self.owned, *self._doubtful))
        # Also after a silence, when the session may have ended: its node is there if it hasn't.
        await self._registry.release(paths.member(self._group_id, self._consumer_id))

    def trigger(self) -> None:
        """Rebalance soon: something has changed."""
        self.settled.clear()
        self._triggered.set()

    def _lost(self) -> None:
        """The session may have ended, and others may own the partitions by now."""
        self._losses += 1
        self._doubtful |= self.owned.keys()
        self.owned.clear()
        self._registered_in = None
        self._reading.lose()
        self.trigger()

    async def _keep(self) -> None:
        """Rebalance at each trigger. A failure is reported and tried again."""
        while True:
            await self._triggered.wait()
            try:
                await self._register()
                await self._rebalance_until_done()
            except ClientError as error:
                _log.warning("consumer %s: %s", self._consumer_id, error)
                self._reading.report(error)
                self._triggered.clear()
                await self._wait(self._triggered, self._backoff)
                self._triggered.set()

    async def _register(self) -> None:
        """Put this consumer's node into the id registry, unless the session has it there."""
        if self._registered_in == self._registry.session:
            return
        path = paths.member(self._group_id, self._consumer_id)
        node = self._subscription.encode(self._now_ms())
        for _ in range(self._registration_retries):
            session = self._registry.session
            if await self._registry.claim(path, node):
                self._registered_in = session
                return
            # A process that was restarted finds its own node, until ZooKeeper ends the old session.
            await self._wait(asyncio.Event(), self._backoff)
        raise RebalanceFailedError(
            f"consumer id {self._consumer_id} is taken in group {self._group_id}: close the other consumer, or give"
            " this one another consumer_id"
        )

    async def _rebalance_until_done(self) -> None:
        """Rebalance, and try again after a back-off, ``rebalance_max_retries`` times. Raises ClientError."""
        failures = 0
        while True:
            self._triggered.clear()
            problem: ClientError | None = None
            try:
                taken = await self._rebalance()
            except ClientError as error:
                # A node may disappear between two requests; then the next attempt sees the change.
                problem = error
                taken = False
                _log.info("consumer %s: rebalancing failed: %s", self._consumer_id, error)
            if taken:
                if not self._triggered.is_set():
                    self.settled.set()
                return
            if await self._wait(self._triggered, self._backoff):
                continue  # the group has changed, so this attempt doesn't count
            failures += 1
            if failures >= self._max_retries:
                raise problem or RebalanceFailedError(
                    f"consumer {self._consumer_id} can't take its partitions after {failures} tries: another consumer"
                    f" of group {self._group_id} doesn't release them. {await self._held()}"
                )

    async def _rebalance(self) -> bool:
        """The rebalancing algorithm; False if it must be tried again. "Each consumer does the following:" """
        losses = self._losses
        if not await self._registry.children(paths.BROKERS, self.trigger):
            _log.warning("consumer %s: there are no brokers", self._consumer_id)
            return True  # a broker that comes triggers the next rebalance
        if self._doubtful:
            await self._release(tuple(self._doubtful))
        # 1. For each topic T that Ci subscribes to
        # 3. let CG be all consumers in the same group as Ci that consume topic T
        threads = await self._consumers()
        # 2. let PT be all partitions producing topic T
        # 4. sort PT (so partitions on the same broker are clustered together)
        #    Since 0.8 a partition has a number of its own and no broker's, so this is the order of the numbers.
        partitions = await self._partitions(threads)
        self._reading.note({topic: len(numbers) for topic, numbers in partitions.items()})
        # 5. sort CG
        # 6. let i be the index position of Ci in CG and let N = size(PT)/size(CG)
        # 7. assign partitions from i*N to (i+1)*N - 1 to consumer Ci
        wanted = {
            partition: thread
            for partition, thread in self._assign(partitions, threads).items()
            if thread.consumer_id == self._consumer_id
        }
        if losses != self._losses:
            return False
        # 8. remove current entries owned by Ci from the partition owner registry
        #    An entry that Ci will own again stays, and is read without a pause.
        leaving = [partition for partition, thread in self.owned.items() if wanted.get(partition) != thread]
        if leaving:
            await self._reading.stop(leaving)
            await self._release(leaving)
        # 9. add newly assigned partitions to the partition owner registry
        #    (we may need to re-try this until the original partition owner releases its ownership)
        new = {partition: thread for partition, thread in wanted.items() if partition not in self.owned}
        if losses != self._losses:
            return False
        self._doubtful |= new.keys()
        for partition, thread in new.items():
            path = paths.owner(self._group_id, partition)
            if not await self._registry.claim(path, str(thread).encode()):
                self._doubtful.discard(partition)
                owner = await self._registry.read(path, self.trigger)
                if owner is None or await self._cleared(path, owner):
                    self.trigger()
                _log.info("consumer %s waits for the owner of %s", self._consumer_id, partition)
                await self._release([each for each in new if each in self._doubtful])
                return False
            if losses != self._losses:
                return False
        if new:
            try:
                await self._reading.start(new)
            except BaseException:
                await self._release(tuple(new))
                raise
        if losses != self._losses:
            self._reading.lose()
            return False
        self._doubtful.difference_update(new)
        self.owned.update(new)
        return True

    async def _cleared(self, path: str, owner: bytes) -> bool:
        """Remove what a dead coordinator of 2012 has left, unless there is another one, which waits for its groups."""
        consumer_id = paths.consumer_of(owner.decode(errors="replace"))
        if consumer_id in await self._registry.children(paths.members(self._group_id)):
            return False
        if await self._registry.read(paths.COORDINATOR) is not None:
            return False
        return await self._registry.remove_persistent(path)

    async def _consumers(self) -> dict[str, list[ThreadId]]:
        """The streams that read each topic, over all members of the group."""
        known: list[str] | None = None
        watch_topics = self.trigger if self._subscription.filter is not None else None
        threads: dict[str, list[ThreadId]] = {}
        members = await self._registry.children(paths.members(self._group_id), self.trigger)
        for consumer_id in members:
            if consumer_id == self._consumer_id:
                subscription = self._subscription
            else:
                path = paths.member(self._group_id, consumer_id)
                node = await self._registry.read(path)
                if node is None:
                    continue  # it has just left, which triggers the next rebalance
                try:
                    subscription = Subscription.decode(path, node)
                except BadNodeError as error:
                    # Without topics it gets no partitions; the group goes on.
                    _log.warning("a member of group %s is left out: %s", self._group_id, error)
                    continue
            if subscription.filter is not None and known is None:
                known = await self._registry.children(paths.TOPICS, watch_topics)
            topics = subscription.topics(known or (), exclude_internal=self._exclude_internal)
            for topic, count in topics.items():
                threads.setdefault(topic, []).extend(ThreadId(consumer_id, i) for i in range(count))
        if self._consumer_id not in members:
            # Another session's node, or one that was deleted by hand: register again.
            self._registered_in = None
            raise RebalanceFailedError(
                f"consumer {self._consumer_id} is not registered in group {self._group_id}"
            )
        return threads

    async def _partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """The partitions of each topic; none for a topic that doesn't exist yet."""
        partitions: dict[str, list[int]] = {}
        for topic in topics:
            path = paths.topic(topic)
            node = await self._registry.read(path, self.trigger)
            if node is None:
                _log.info("consumer %s: topic %s doesn't exist yet", self._consumer_id, topic)
            else:
                partitions[topic] = paths.read_partitions(path, node)
        return partitions

    async def _release(self, partitions: Collection[TopicPartition]) -> None:
        """Take this consumer's name out of the owner registry."""
        for partition in partitions:
            self.owned.pop(partition, None)
            self._doubtful.add(partition)
        for partition in partitions:
            await self._registry.release(paths.owner(self._group_id, partition))
            self._doubtful.discard(partition)

    async def _held(self) -> str:
        """The owners of the partitions that this consumer waits for."""
        try:
            threads = await self._consumers()
            assigned = self._assign(await self._partitions(threads), threads)
            for partition, thread in sorted(assigned.items()):
                if thread.consumer_id != self._consumer_id or partition in self.owned:
                    continue
                owner = await self._registry.read(paths.owner(self._group_id, partition))
                if owner is not None:
                    return f"The owner of {partition} is {owner.decode(errors='replace')}"
        except ClientError as error:
            return str(error)
        return "They are free by now"
