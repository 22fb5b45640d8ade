"""The 2012 coordinator's memory: groups, and the consumers that have registered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from ottla_broker.clock import TimerHandle
from ottla_broker.coordinator.push.assignment import TopicPartition
from ottla_broker.coordinator.push.states import NEXT, GroupState
from ottla_broker.coordinator.push.subscription import PushSubscription


class Channel(Protocol):
    """The connection by which a consumer has registered.

    Attributes:
        limit: the most bytes of the next message.
        client_host: the consumer's address.
    """

    limit: int
    client_host: str

    @property
    def peer(self) -> str: ...
    def send(self, frame: bytes) -> None:
        """Send one frame; nothing happens if the connection has closed."""

    def close(self, reason: str) -> None:
        """Close the connection, and log why unless that is empty; a second call does nothing."""


@dataclass(eq=False, slots=True)
class ConsumerRegistry:
    """One consumer, from its registration to its failure."""

    group_id: str
    consumer_id: str
    subscription: PushSubscription
    auto_commit: bool
    smallest: bool
    """Start with the first record where there is no offset; otherwise behind the last."""
    session_seconds: float
    channel: Channel
    alive: bool = True
    failed_pings: int = 0
    ping: bytes | None = None
    """The frame of a ping that isn't repeated, once it has been encoded: one is sent every third of a session."""
    assigned: dict[TopicPartition, str] | None = None
    """The share that the last StartFetcherRequest had; None before it, and from the StopFetcherRequest on."""
    confirmed: bool = False
    """Whether the consumer has confirmed ``assigned``."""
    reading: frozenset[TopicPartition] = frozenset()
    """Partitions whose offsets it may report: also those that it gives up now, until its answer."""

    @property
    def response_seconds(self) -> float:
        """The seconds that it may take to answer: two thirds of its session timeout."""
        return self.session_seconds * 2 / 3


@dataclass(eq=False, slots=True)
class Attempt:
    """One wait for all consumers' answers to StopFetcher or StartFetcher requests."""

    waiting: set[ConsumerRegistry]
    done: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    """Why the attempt has failed: the document's ``rebalanceFailed``."""

    def answered(self, consumer: ConsumerRegistry) -> None:
        self.waiting.discard(consumer)
        if not self.waiting:
            self.done.set()

    def fail(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.done.set()


@dataclass(eq=False, slots=True)
class GroupRegistry:
    """One group, from its first consumer to its last."""

    group_id: str
    members: dict[str, ConsumerRegistry] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets that consumers have reported and that are not stored yet (``offsetUpdated``: there are some)."""
    stored: dict[TopicPartition, int] = field(default_factory=dict)
    """Offsets that the store has, as far as they are known: an idle consumer reports the same ones again and again."""
    storing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while offsets are written."""
    commits: dict[ConsumerRegistry, int] = field(default_factory=dict)
    """Consumers that wait for their offsets to be stored, with the number of confirmations they expect."""
    committing: bool = False
    """A task stores offsets for ``commits``."""
    state: GroupState = GroupState.IDLE
    rebalance_initiated: bool = False
    """A rebalance waits in a handler's queue, so that no other one needs to."""
    current_rebalancer: int | None = None
    """The handler that this group's rebalances go to, until it has finished."""
    again: TimerHandle | None = None
    """Queues the group for its next attempt; an attempt that begins earlier replaces it."""
    attempt: Attempt | None = None
    retries: int = 0
    changes: int = 0
    """Counts consumers that failed, so that a rebalance knows that its failure came from one."""
    joined_at: float = 0.0
    """When the last consumer registered."""
    joining_since: float | None = None
    """Since when the next rebalance has waited for more consumers."""
    awaited: set[str] | None = None
    """Consumers of an earlier coordinator that are waited for; None before the store was asked."""
    awaited_until: float = 0.0
    read_before: dict[TopicPartition, str] = field(default_factory=dict)
    """Who read what at an earlier coordinator, until the first rebalance here: they may report those offsets, too."""

    def move(self, state: GroupState) -> None:
        """Change the state. Raises ValueError for a change that the table doesn't have."""
        if state not in NEXT[self.state]:
            raise ValueError(f"group {self.group_id}: {self.state.name} can't become {state.name}")
        self.state = state
