"""The protocol of one transactional producer as a small model, which is explored in all orders of events (decision 9).

Clients, connections and moves are modelled. What the broker decides by is its own code: HeardConnections and
ConnectionAge, ProducerStates (sequence numbers, guards, markers), TransactionMetadata and the tables of answers.

Each frame carries the number of the transaction that it belongs to, which brokers don't see. So the model knows at once
when a frame takes effect in another transaction.

- A connection delivers in order, at any time, also when its client has given it up. A client gives a connection up
  before it sends something else by it than what has no answer yet; with ``repeats`` (librdkafka's ``socket.max.fails``
  other than 1) it sends again on the same one, and then what was sent together arrives together.
- A client goes on by the newest connection to a broker, and has one request of a kind under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple, cast

from tests.coordinator.late_copies import copy_age, copy_heard, copy_states, entry_key, verification_key

from ottla_broker.coordinator.transaction.metadata import Producer, TransactionMetadata
from ottla_broker.coordinator.transaction.states import (
    END,
    END_REPEATED,
    END_WITH_BUMP,
    ONGOING,
    PREPARED,
)
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.heard_connections import Arrival, ConnectionAge, HeardConnections
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.verification import UNVERIFIED
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import TRANSACTIONAL, BatchHeader
from ottla_protocol.records.control import ABORT, COMMIT, ControlRecord

ID = 1
DATA, OFFSETS_LOG = ("t", 0), ("__consumer_offsets", 0)
ZOMBIE = 0


class Api(IntEnum):
    INIT = 0
    ADD = 1
    PRODUCE = 2
    OFFSETS = 3
    END = 4


_LOGS = {Api.PRODUCE: DATA, Api.OFFSETS: OFFSETS_LOG}
_PLACES = {Api.ADD: 0, Api.PRODUCE: 1, Api.OFFSETS: 2}


class Frame(NamedTuple):
    """A request under way. ``transaction`` is known to the model alone."""

    api: Api
    instance: int
    epoch: int
    transaction: int
    sequence: int = -1
    commit: bool = False
    attempt: int = 0
    together: bool = False
    """Whether it was sent behind one without an answer, so that it arrives with that one."""


class Client(NamedTuple):
    """What an instance of the producer does.

    ``asked``: the last try of the request that has no answer yet. ``outcomes``: how it has ended its transactions.
    """

    epoch: int = -1
    transaction: int = 0
    todo: tuple[Api, ...] = ()
    asked: Frame | None = None
    link: int = -1
    sequence: int = 0
    acknowledged: tuple[int, ...] = ()
    outcomes: tuple[bool, ...] = ()


class Rules(NamedTuple):
    """What the clients are like, and how much may go wrong."""

    writes: tuple[Api, ...]
    version: int = 1
    transactions: int = 2
    brokers: int = 1
    places: tuple[int, int, int] = (0, 0, 0)
    """The brokers where the coordinator, the data's leader and the group's coordinator are at first."""
    shares: bool = True
    """One connection to a broker for everything, as Java's; otherwise one more for the coordinator, as librdkafka's."""
    leaves_batches: bool = False
    """It aborts without waiting for the answer to a batch, and uses its sequence number again, as librdkafka."""
    is_new: bool = False
    """The transactional id isn't known yet."""
    breaks: int = 1
    losses: int = 0
    moves: int = 0
    repeats: int = 0
    zombies: int = 0


class Link:
    __slots__ = ("age", "broker", "frames", "instance", "is_open", "purpose")

    def __init__(self, broker: int, purpose: int, instance: int, age: ConnectionAge) -> None:
        self.broker, self.purpose, self.instance, self.age = broker, purpose, instance, age
        self.is_open = True
        self.frames: tuple[Frame, ...] = ()


class Violation(Exception):
    """Something that must not happen."""


class Variant(NamedTuple):
    """The broker's rules, or weaker ones that a test shows to be too weak."""

    heard: Callable[..., HeardConnections] = HeardConnections
    states: type[ProducerStates] = ProducerStates
    notes_creation: bool = True
    arrives_together: bool = True
    """Whether what was held together arrives within :data:`.REACTION_SECONDS`."""


_ENVIRONMENT = LogEnvironment(cast(Any, None), lambda: 0, cast(Any, None), verifies_transactions=True)


class World:
    """One state of everything. Steps are taken on copies."""

    def __init__(self, rules: Rules, variant: Variant) -> None:
        self.rules, self.variant = rules, variant
        self.now = 1
        self.links: dict[int, Link] = {}
        self.made = 0
        self.places = list(rules.places)
        self.heard: HeardConnections | None = None
        self.metadata: TransactionMetadata | None = None
        self.begun = 0
        self.logs = {
            (name, broker): _states(variant.states, name, self)
            for api, name in _LOGS.items()
            if api in rules.writes
            for broker in range(rules.brokers)
        }
        # Of the data's log: the transactions of its batches, and how those have ended.
        self.data: tuple[tuple[int, bool | None], ...] = ()
        # Of the group's log: what waits for a marker, and what was committed.
        self.pending_offset = self.offset = 0
        self.left = [rules.breaks, rules.losses, rules.moves, rules.repeats, rules.zombies]
        self.client = Client()
        if not rules.is_new:
            self.metadata = TransactionMetadata(ID, timeout_ms=1).initialized(None, 1, 0)
            self._hear_here()
            if not rules.zombies:
                self.client = Client(epoch=0)

    # Copies and keys

    def copy(self) -> World:
        made = World.__new__(World)
        made.__dict__.update(self.__dict__)
        made.links = {}
        for number, link in self.links.items():
            other = made.links[number] = Link(link.broker, link.purpose, link.instance, copy_age(link.age))
            other.is_open, other.frames = link.is_open, link.frames
        made.places = self.places.copy()
        made.left = self.left.copy()
        made.heard = None if self.heard is None else copy_heard(self.heard)
        made.logs = {key: copy_states(states, lambda: made.now) for key, states in self.logs.items()}
        return made

    def key(self) -> object:
        """Equal for states that differ only in absolute times and in the numbers of connections."""
        times: set[float] = set()
        for link in self.links.values():
            times.update((link.age.accepted_at, link.age.sent_after), link.age._refused.values())
        heard = [self.heard] if self.heard is not None else []
        for states in self.logs.values():
            heard.extend(states.heard._heard.values())
            times.add(states.heard._forgotten_at)
        for each in heard:
            times.update((each.newest, each.since))
        rank = {time: at for at, time in enumerate(sorted(times))}
        links = tuple(
            (
                number == self.client.link,
                link.broker,
                link.purpose,
                link.instance,
                link.is_open,
                link.frames,
                rank[link.age.accepted_at],
                rank[link.age.sent_after],
                tuple(sorted((str(what), rank[at]) for what, at in link.age._refused.items())),
            )
            for number, link in sorted(self.links.items())
        )
        logs = tuple(
            (
                entry_key(states.producers.get(ID)),
                tuple(
                    (each.epoch, rank[each.newest], rank[each.since]) for each in states.heard._heard.values()
                ),
                rank[states.heard._forgotten_at],
                verification_key(states.verifications.find(ID)),
            )
            for states in self.logs.values()
        )
        coordinator = (
            None
            if self.heard is None
            else (self.heard.epoch, rank[self.heard.newest], rank[self.heard.since])
        )
        client = self.client._replace(link=-1)
        return (
            links,
            logs,
            coordinator,
            self.metadata,
            self.begun,
            tuple(self.places),
            self.data,
            self.pending_offset,
            self.offset,
            tuple(self.left),
            client,
        )

    # Steps

    def steps(self) -> Iterator[tuple[str, World]]:
        """Everything that can happen next. Raises Violation."""
        for name, step in self._possible():
            world = self.copy()
            world.now += 1
            try:
                step(world)
            except Violation as violation:
                violation.add_note(name)
                raise
            world._forget_dead()
            yield name, world

    def _possible(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        client = self.client
        if client.asked is None:
            yield from self._asks()
        elif not self._is_open(client.link):
            yield "sends again on a new connection", lambda world: world._send_again()
            if client.asked.api is Api.OFFSETS or (
                client.asked.api is Api.PRODUCE and self.rules.leaves_batches
            ):
                yield "gives up and aborts", lambda world: world._abandon()
        elif self.left[3] and self.links[client.link].frames:
            yield "sends again on the same connection", lambda world: world._repeat()
        for number, link in self.links.items():
            if link.frames:
                what = f"{link.frames[0].api.name} of {link.frames[0].transaction} by {number}"
                yield f"arrives: {what}", lambda world, at=number: world._deliver(at)  # type: ignore[misc]
                if link.is_open and self.left[0]:
                    yield f"breaks before: {what}", lambda world, at=number: world._break(at)  # type: ignore[misc]
                if link.is_open and self.left[1] and link.instance:
                    yield f"loses the answer: {what}", lambda world, at=number: world._lose(at)  # type: ignore[misc]
        if self.metadata is not None and self.metadata.state in PREPARED:
            yield "markers are written", lambda world: world._mark()
        if self.left[2]:
            for place in (0, *(_PLACES[api] for api in self.rules.writes)):
                yield f"place {place} moves", lambda world, at=place: world._move(at)  # type: ignore[misc]
        if self.left[4] and self.client.epoch > 0:
            for api in (Api.INIT, Api.ADD, *self.rules.writes, Api.END):
                yield f"old instance: {api.name}", lambda world, api=api: world._haunt(api)  # type: ignore[misc]

    def _is_open(self, number: int) -> bool:
        return number in self.links and self.links[number].is_open

    def _forget_dead(self) -> None:
        """A connection that was given up and carries nothing is gone."""
        for number in [number for number, link in self.links.items() if not (link.is_open or link.frames)]:
            del self.links[number]

    def finish(self) -> None:
        """The client ends its transactions, without further faults. Raises Violation if it can't."""
        for _ in range(_MOST_STEPS):
            client = self.client
            self.now += 1
            if self.metadata is not None and self.metadata.state in PREPARED:
                self._mark()
            elif client.asked is None:
                step = next(self._asks(), None)
                if step is None:
                    return
                step[1](self)
            elif not self._is_open(client.link):
                self._send_again()
            else:
                self._deliver(client.link)
        raise Violation("the client waits for ever")

    # The client

    def _asks(self) -> Iterator[tuple[str, Callable[[World], None]]]:
        client = self.client
        if client.epoch < 0:
            yield "initializes", lambda world: world._ask(Api.INIT)
        elif not client.todo:
            if client.transaction < self.rules.transactions:
                yield "begins", lambda world: world._begin()
        elif client.todo[0] is Api.END:
            yield "commits", lambda world: world._ask(Api.END, commit=True)
            yield "aborts", lambda world: world._ask(Api.END, commit=False)
        else:
            yield client.todo[0].name.lower(), lambda world: world._ask(world.client.todo[0])

    def _begin(self) -> None:
        adds = (Api.ADD,) if self.rules.version == 1 else ()
        self.client = self.client._replace(
            transaction=self.client.transaction + 1, todo=(*adds, *self.rules.writes, Api.END)
        )
        self._ask(self.client.todo[0])

    def _ask(self, api: Api, *, commit: bool = False) -> None:
        client = self.client
        if api is Api.END:
            client = client._replace(outcomes=(*client.outcomes, commit))
        sequence = client.sequence if api is Api.PRODUCE else -1
        asked = Frame(api, 1, client.epoch, client.transaction, sequence, commit)
        self.client = client._replace(asked=asked)
        self._send(asked)

    def _send_again(self) -> None:
        asked = self.client.asked
        assert asked is not None
        under_way = {
            frame.attempt for link in self.links.values() for frame in link.frames if frame[:6] == asked[:6]
        }
        attempt = next(number for number in range(len(under_way) + 1) if number not in under_way)
        asked = asked._replace(attempt=attempt, together=False)
        self.client = self.client._replace(asked=asked)
        self._send(asked)

    def _repeat(self) -> None:
        self.left[3] -= 1
        self._send_again()

    def _abandon(self) -> None:
        self.client = self.client._replace(asked=None, todo=(Api.END,))
        self._ask(Api.END, commit=False)

    def _send(self, frame: Frame) -> None:
        place = _PLACES.get(frame.api, 0)
        purpose = 0 if self.rules.shares or place else 1
        number = self._link(self.places[place], purpose, frame.instance)
        link = self.links[number]
        if link.frames:
            frame = frame._replace(together=True)
        link.frames += (frame,)
        if frame.instance:
            self.client = self.client._replace(link=number, asked=frame)

    def _link(self, broker: int, purpose: int, instance: int) -> int:
        """The connection that an instance has to a broker; a new one if it has none."""
        for number, link in self.links.items():
            if link.is_open and (link.broker, link.purpose, link.instance) == (broker, purpose, instance):
                return number
        self.made += 1
        self.links[self.made] = Link(broker, purpose, instance, ConnectionAge(self.now))
        return self.made

    def _answered(self, frame: Frame, code: ErrorCode) -> None:
        """The client has an answer to what it has asked."""
        client = self.client
        if frame != client.asked:
            return  # It has sent the request again since.
        if code in _AGAIN:
            self._send_again()
            return
        if code is not ErrorCode.NONE:
            raise Violation(f"the producer gets {code.name} for {frame.api.name} of {frame.transaction}")
        client = client._replace(asked=None)
        if frame.api is Api.INIT:
            assert self.metadata is not None
            self.client = client._replace(epoch=self.metadata.producer_epoch)
            return
        if frame.api is Api.PRODUCE:
            client = client._replace(
                sequence=client.sequence + 1, acknowledged=(*client.acknowledged, client.transaction)
            )
        if frame.api is Api.END and self.rules.version == 2:
            assert self.metadata is not None
            client = client._replace(epoch=self.metadata.producer_epoch, sequence=0)
        self.client = client._replace(todo=client.todo[1:])

    # The network

    def _break(self, number: int) -> None:
        self.left[0] -= 1
        self.links[number].is_open = False

    def _lose(self, number: int) -> None:
        self.left[1] -= 1
        self.links[number].is_open = False
        self._deliver(number)

    def _deliver(self, number: int) -> None:
        link = self.links[number]
        while True:
            frame, link.frames = link.frames[0], link.frames[1:]
            code = self._serve(link, frame)
            if code is None:
                link.is_open, link.frames = False, ()
                return
            if link.is_open and frame.instance:
                self._answered(frame, code)
            if not (link.frames and link.frames[0].together):
                return
            if not self.variant.arrives_together:
                self.now += 1

    # The brokers

    def _hear_here(self) -> None:
        self.heard = self.variant.heard(self.now)

    def _move(self, place: int) -> None:
        """Another broker leads; what it knows of connections is from when it led before."""
        self.left[2] -= 1
        self.places[place] = (self.places[place] + 1) % self.rules.brokers
        if place == 0 and self.metadata is not None:
            self._hear_here()
        elif place == 2:
            self.logs[OFFSETS_LOG, self.places[2]].hear_from_now()

    def _mark(self) -> None:
        metadata = self.metadata
        assert metadata is not None
        kind = COMMIT if metadata.commits else ABORT
        for name in metadata.partitions:
            for broker in range(self.rules.brokers):
                header = _header(metadata.producer_epoch, -1)
                states = self.logs[name, broker]
                states.end_transaction(header, ControlRecord(kind, 0), states.end_offset)
        outcomes = dict(enumerate(self.client.outcomes, 1))
        if DATA in metadata.partitions:
            self.data = tuple(
                (transaction, metadata.commits if ended is None else ended)
                for transaction, ended in self.data
            )
            self._check_data(outcomes)
        if OFFSETS_LOG in metadata.partitions:
            if metadata.commits and self.pending_offset:
                if self.pending_offset != self.begun:
                    raise Violation(f"offset {self.pending_offset} is committed by {self.begun}")
                self.offset = self.pending_offset
            self.pending_offset = 0
        self.metadata = metadata.completed(0)

    def _check_data(self, outcomes: dict[int, bool]) -> None:
        committed = [transaction for transaction, ended in self.data if ended]
        for transaction in committed:
            if not outcomes.get(transaction):
                raise Violation(f"a record of {transaction}, which was not committed, is read")
        acknowledged = self.client.acknowledged
        for transaction in set(acknowledged):
            found, sent = committed.count(transaction), acknowledged.count(transaction)
            if outcomes.get(transaction) and transaction <= self.begun and found != sent:
                raise Violation(f"of {transaction}, {found} records are read, {sent} were acknowledged")

    def _serve(self, link: Link, frame: Frame) -> ErrorCode | None:
        """A broker's answer; None: it closes the connection."""
        place = _PLACES.get(frame.api, 0)
        if link.broker != self.places[place]:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            if place == 0:
                return self._coordinate(link, frame)
            return self._write(link, frame, DATA if place == 1 else OFFSETS_LOG)
        except KafkaError as error:
            return error.code

    def _expects(self, frame: Frame) -> None:
        """A frame takes effect: its client must wait for that."""
        asked = self.client.asked
        same = asked is not None and asked[:6] == frame[:6]
        if not same:
            raise Violation(f"{frame.api.name} of {frame.transaction} takes effect late")

    def _coordinate(self, link: Link, frame: Frame) -> ErrorCode | None:
        producer = Producer(ID, frame.epoch)
        names_none = frame.api is Api.INIT and frame.instance != ZOMBIE
        if self.heard is not None and (names_none or not self._checked(producer)):
            arrival = self.heard.hear(link.age, frame.api, self.now)
            if arrival is not Arrival.TIMELY:
                return None if arrival is Arrival.LATE else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if frame.api is Api.INIT:
            return self._initialize(link, frame, None if names_none else producer)
        metadata = self.metadata
        if metadata is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        repeated = self.rules.version == 2 and frame.api is Api.END and metadata.was_ended_by(producer)
        if not repeated and (error := metadata.check_producer(producer)):
            return ErrorCode(error)
        if frame.api is Api.ADD:
            if metadata.state in PREPARED:
                return ErrorCode.CONCURRENT_TRANSACTIONS
            names = [_LOGS[api] for api in self.rules.writes]
            if metadata.state is not ONGOING or not metadata.partitions.issuperset(names):
                self._expects(frame)
                self.metadata, self.begun = metadata.added(names, 0), frame.transaction
            return ErrorCode.NONE
        answers = END if self.rules.version == 1 else END_REPEATED if repeated else END_WITH_BUMP
        answer = answers[metadata.state][0 if frame.commit else 1]
        if answer is not None:
            return ErrorCode(answer)
        self._expects(frame)
        self.metadata = (
            metadata.ended(frame.commit, 0)
            if self.rules.version == 1
            else metadata.ended_with_bump(frame.commit, 0)
        )
        return ErrorCode.NONE

    def _checked(self, producer: Producer) -> int:
        assert self.metadata is not None
        return self.metadata.check_producer(producer)

    def _initialize(self, link: Link, frame: Frame, expected: Producer | None) -> ErrorCode:
        metadata = self.metadata
        if metadata is None:
            metadata = TransactionMetadata(ID, timeout_ms=1)
            self._hear_here()
            assert self.heard is not None
            self.heard.since = 0
            if self.variant.notes_creation:
                self.heard.newest = link.age.accepted_at
        if metadata.refuses(expected):
            return ErrorCode.PRODUCER_FENCED
        if metadata.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if metadata.state is ONGOING:
            if expected is not None and metadata.check_producer(expected):
                return ErrorCode.PRODUCER_FENCED
            self._expects(frame)
            self.metadata = metadata.fenced(0)
            return ErrorCode.CONCURRENT_TRANSACTIONS
        successor = metadata.initialized(expected, 1, 0)
        if successor is None:
            return ErrorCode.PRODUCER_FENCED
        self._expects(frame)
        self.metadata = successor
        return ErrorCode.NONE

    def _write(self, link: Link, frame: Frame, name: tuple[str, int]) -> ErrorCode | None:
        states = self.logs[name, link.broker]
        request = frame.sequence if name == DATA else "g"
        arrival = states.hear(ID, frame.epoch, link.age, request)
        if arrival is not Arrival.TIMELY:
            return None if arrival is Arrival.LATE else ErrorCode.NOT_ENOUGH_REPLICAS
        guard = UNVERIFIED if name == DATA else None
        if states.needs_verification(ID, frame.epoch):
            first = 0 if self.rules.version == 2 and not states.has_written(ID) else max(frame.sequence, 0)
            guard = states.verifications.begin(ID, first, frame.epoch, 0)
            error = self._verify(frame, name)
            if error is not ErrorCode.NONE:
                return error
        header = _header(frame.epoch, frame.sequence)
        stored = states.check(header, frame.sequence, from_client=name == DATA, guard=guard)
        if stored is not None:
            if self.data[stored.first_offset][0] != frame.transaction and frame == self.client.asked:
                raise Violation(f"the record of {frame.transaction} is taken for one before, and lost")
            return ErrorCode.NONE
        if frame.transaction != self.begun or frame.instance == ZOMBIE:
            raise Violation(f"{frame.api.name} of {frame.transaction} is written in {self.begun}")
        for broker in range(self.rules.brokers):
            offset = len(self.data)
            self.logs[name, broker].update(header, frame.sequence, offset, offset, 0)
        if name == DATA:
            self.data += ((frame.transaction, None),)
        else:
            self.pending_offset = frame.transaction
        return ErrorCode.NONE

    def _verify(self, frame: Frame, name: tuple[str, int]) -> ErrorCode:
        metadata = self.metadata
        if metadata is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if metadata.check_producer(Producer(ID, frame.epoch)):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if metadata.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.rules.version == 2:
            if metadata.state is not ONGOING:
                self.begun = frame.transaction
            self.metadata = metadata.added([name], 0, 2)
            return ErrorCode.NONE
        return ErrorCode.NONE if name in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE

    # The instance that was replaced

    def _haunt(self, api: Api) -> None:
        """The first instance, which had epoch 0, sends something by its connection, which may be the newer one."""
        self.left[4] -= 1
        self._send(Frame(api, ZOMBIE, 0, -1, 0 if api is Api.PRODUCE else -1, True))


_MOST_STEPS = 60
_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def _header(epoch: int, sequence: int) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, TRANSACTIONAL, 0, 0, 0, ID, epoch, sequence, 1)


def _states(kind: type[ProducerStates], name: tuple[str, int], world: World) -> ProducerStates:
    states = kind(_ENVIRONMENT, "", name[0])
    states.monotonic = lambda: world.now
    return states
