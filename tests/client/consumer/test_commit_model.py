"""No commit passes a record that wasn't handed out, whatever an application does, and in which order.

The same machine drives the async and the sync consumer: on a fake broker, which checks each commit before it is
stored and makes rebalances, and on a real one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from tests.client.consumer.conftest import QUICK, numbered, put, tp
from tests.client.consumer.fakegroup import END, FakeGroup, LoopThread
from tests.support import depth
from tests.support.wire import Wire

from ottla_client import Consumer, sync
from ottla_client.consumer import engine
from ottla_client.deadline import Deadline
from ottla_client.errors import ClientError
from ottla_client.group.member import GroupMember
from ottla_client.types import ConsumerRecord, TopicPartition
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

PARTITIONS = 3
NUMBERS = st.integers(0, PARTITIONS - 1)
SOME = st.sets(NUMBERS, min_size=1)
COUNTS = st.integers(1, 12)
OPTIONS: dict[str, Any] = {
    **QUICK,
    "auto_commit_interval_ms": 1,
    "fetch_max_wait_ms": 20,
    "heartbeat_interval_ms": 5,
    "max_poll_records": 30,
}


class AsyncDriver:
    """An async consumer, used from another thread like a sync one."""

    def __init__(self, topic: str, **options: Any) -> None:
        self.thread = LoopThread()

        async def make() -> Consumer:
            consumer = Consumer(topic, **options)
            await consumer.start()
            return consumer

        self._client = self.thread.run(make())

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            result = getattr(self._client, name)(*arguments, **options)
            return await result if isinstance(result, Coroutine) else result

        return lambda *arguments, **options: self.thread.run(call(*arguments, **options))

    def __iter__(self) -> Iterator[ConsumerRecord[Any, Any]]:
        records = aiter(self._client)
        while True:

            async def take() -> ConsumerRecord[Any, Any]:
                return await anext(records)

            yield self.thread.run(take())

    def end(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.thread.run(closing())
        self.thread.stop()


class SyncDriver(sync.Consumer):
    """A sync consumer that has started."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)
        self.start()

    def end(self, closing: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._end(closing)


def member_of(consumer: Any) -> GroupMember:
    """The consumer's membership in its group."""
    member: GroupMember = consumer._client._engine.commits.member
    return member


class Model(RuleBasedStateMachine):
    """The records that were handed out, and those that the application has processed, which may be committed.

    A record that the application skips by a seek counts as both.
    """

    driver: type[AsyncDriver | SyncDriver]
    leaving = 0.0
    """Seconds that a consumer may take to leave the group when it crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.done: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.positions: list[int | None] = [None] * PARTITIONS
        """Known from the first record on, and while nothing rebalances."""
        self.rebalancing = False
        self.wrong: list[str] = []
        self.topic = "t"
        self.consumer: Any = None
        self.records: Iterator[ConsumerRecord[Any, Any]] = iter(())

    # what the subclasses define

    def options(self) -> dict[str, Any]:
        raise NotImplementedError

    def is_stable(self) -> bool:
        """Whether the member has its assignment."""
        raise NotImplementedError

    def silence(self, silent: bool) -> None:
        """Keep the consumer's requests from the group."""

    def check_commit(self, number: int, offset: int) -> None:
        missing = set(range(offset)) - self.done[number]
        if missing:
            being_processed = missing & self.handed[number]
            self.wrong.append(
                f"{offset} of partition {number} was committed, with {sorted(missing - being_processed)} not handed "
                f"out and {sorted(being_processed)} being processed"
            )

    # the model

    def start(self) -> None:
        self.positions = [None] * PARTITIONS
        self.consumer = self.driver(self.topic, **OPTIONS, **self.options())
        self.records = iter(self.consumer)

    def asks(self) -> None:
        """The application asks for records, so it has processed those that it has."""
        for done, handed in zip(self.done, self.handed, strict=True):
            done |= handed

    def gets(self, places: Iterable[tuple[int, int]]) -> None:
        for number, offset in places:
            position = self.positions[number]
            if position is None:
                missing = set(range(offset)) - self.handed[number]
                assert not missing, f"{sorted(missing)} of partition {number} were never handed out"
            else:
                assert offset == position
            self.handed[number].add(offset)
            if not self.rebalancing:
                self.positions[number] = offset + 1

    def gets_records(self, records: Iterable[ConsumerRecord[Any, Any]]) -> int:
        places = [(record.partition, record.offset) for record in records]
        self.gets(places)
        return len(places)

    def finish_rebalance(self) -> None:
        """Wait for the end of a rebalance."""
        deadline = time.monotonic() + 60
        while self.rebalancing:
            assert time.monotonic() < deadline
            self.asks()
            self.gets_records(self.consumer.poll(1, 1))
            if self.is_stable():
                self.rebalancing = False

    def assigned(self, numbers: Iterable[int]) -> list[TopicPartition]:
        mine = self.consumer.assignment()
        return [tp(self.topic, number) for number in numbers if tp(self.topic, number) in mine]

    def something_is_left(self) -> bool:
        mine = self.consumer.assignment() - self.consumer.paused()
        return any(self.consumer.position(partition) < END for partition in mine)

    # what an application does

    @rule(count=COUNTS)
    def poll(self, count: int) -> None:
        paused = self.consumer.paused()
        self.asks()
        records = self.consumer.poll(5, count)
        assert len(records) <= count
        if not self.rebalancing:
            assert not {record.topic_partition for record in records} & paused
        self.gets_records(records)

    @rule(count=COUNTS, numbers=SOME)
    def getmany(self, count: int, numbers: set[int]) -> None:
        partitions = self.assigned(numbers)
        self.asks()
        with suppress(ClientError):  # where one is taken away meanwhile
            for partition, records in self.consumer.getmany(
                *partitions, timeout_ms=5, max_records=count
            ).items():
                assert not partitions or partition in partitions
                self.gets_records(records)

    @rule(count=COUNTS)
    def poll_arrow(self, count: int) -> None:
        self.asks()
        table = self.consumer.poll_arrow(5, count)
        self.gets(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))

    @rule(count=COUNTS, singly=st.booleans())
    def iterate(self, count: int, singly: bool) -> None:
        self.finish_rebalance()
        for _ in range(count):
            if not self.something_is_left():
                return
            self.asks()
            self.gets_records([self.consumer.getone() if singly else next(self.records)])

    @rule(numbers=SOME)
    def pause(self, numbers: set[int]) -> None:
        for partition in self.assigned(numbers):
            with suppress(ClientError):
                self.consumer.pause(partition)

    @rule(numbers=SOME)
    def resume(self, numbers: set[int]) -> None:
        for partition in self.assigned(numbers):
            with suppress(ClientError):
                self.consumer.resume(partition)

    @rule(number=NUMBERS, offset=st.integers(0, END))
    def seek(self, number: int, offset: int) -> None:
        for partition in self.assigned([number]):
            self.skips(number, offset)
            with suppress(ClientError):
                self.consumer.seek(partition, offset)
            self.positions[number] = None if self.rebalancing else offset

    @rule(numbers=SOME, to_end=st.booleans())
    def seek_to_an_end(self, numbers: set[int], to_end: bool) -> None:
        self.finish_rebalance()
        partitions = self.assigned(numbers)
        for partition in partitions:
            self.skips(partition.partition, END if to_end else 0)
            self.positions[partition.partition] = END if to_end else 0
        if partitions:
            (self.consumer.seek_to_end if to_end else self.consumer.seek_to_beginning)(*partitions)

    def skips(self, number: int, offset: int) -> None:
        self.handed[number] |= set(range(offset))
        self.done[number] |= set(range(offset))

    @rule()
    def commit(self) -> None:
        self.asks()
        with suppress(ClientError):
            self.consumer.commit()

    @rule()
    def work(self) -> None:
        """Long enough for an automatic commit."""
        time.sleep(0.01)

    @rule()
    def close(self) -> None:
        self.asks()
        self.consumer.end(self.consumer._client.close)
        self.start()

    @rule()
    def fail(self) -> None:
        """The application's exception leaves ``with``."""
        self.consumer.end(
            lambda client=self.consumer._client: client.__aexit__(ValueError, ValueError(), None)
        )
        self.start()

    @rule()
    def crash(self) -> None:
        self.vanish()
        self.start()

    def vanish(self) -> None:
        self.silence(True)
        client = self.consumer._client
        client._closed_properly = True
        self.consumer.end(lambda: client._engine.close(Deadline(self.leaving), commit=False))
        self.silence(False)

    @invariant()
    def no_commit_was_wrong(self) -> None:
        assert not self.wrong

    @invariant()
    def positions_follow(self) -> None:
        if self.consumer is None or self.rebalancing:
            return
        for partition in self.consumer.assignment():
            position = self.positions[partition.partition]
            if position is not None:
                assert self.consumer.position(partition) == position

    def teardown(self) -> None:
        if self.consumer is not None:
            self.vanish()
        assert not self.wrong


class OnFake(Model):
    """With rebalances to any assignment."""

    @initialize(cooperative=st.booleans())
    def begin(self, cooperative: bool) -> None:
        self.strategy = "cooperative-sticky" if cooperative else "range"
        self.thread = LoopThread()
        self.fake = FakeGroup(PARTITIONS, self.check_commit)
        self.thread.run(self.fake.start())
        self.rebalancing = True
        self.start()

    def start(self) -> None:
        super().start()
        self.rebalancing = True

    def options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.fake.bootstrap,
            "group_id": "g",
            "partition_assignment_strategy": [self.strategy],
        }

    @rule(numbers=st.sets(NUMBERS))
    def rebalance(self, numbers: set[int]) -> None:
        self.rebalancing = True
        self.positions = [None] * PARTITIONS

        async def begin() -> None:
            self.fake.rebalance(numbers)

        # Wait until the rebalance has begun, or `is_stable` would take the old assignment for the new one.
        self.thread.run(begin())

    def is_stable(self) -> bool:
        metadata = member_of(self.consumer).group_metadata
        return (
            metadata is not None
            and metadata.generation_id == self.fake.generation
            and self.consumer.assignment() == {tp("t", number) for number in self.fake.assignment}
        )

    def silence(self, silent: bool) -> None:
        self.fake.silent = set(self.fake.answers) if silent else set()

    def teardown(self) -> None:
        super().teardown()
        self.thread.run(self.fake.stop())
        self.thread.stop()


class OnBroker(Model):
    """With another member that joins, reads nothing and leaves."""

    broker: BrokerProcess
    new_topic: Callable[..., str]
    leaving = 30.0  # so that the next member needn't wait for the session to end

    @initialize()
    def begin(self) -> None:
        self.topic = self.new_topic(PARTITIONS)
        for number in range(PARTITIONS):
            put(self.broker, self.topic, numbered(END), number, batch=7)
        self.other: sync.Consumer | None = None
        self.start()

    def start(self) -> None:
        super().start()
        self.rebalancing = True

    def options(self) -> dict[str, Any]:
        return {"bootstrap_servers": self.broker.bootstrap, "group_id": self.topic}

    @rule()
    def rebalance(self) -> None:
        self.rebalancing = True
        self.positions = [None] * PARTITIONS
        if self.other is None:
            options = {**OPTIONS, **self.options(), "enable_auto_commit": False}
            self.other = sync.Consumer(self.topic, **options)
            self.other.start()
        else:
            self.other.close()
            self.other = None

    def is_stable(self) -> bool:
        members = [each for each in (self.consumer, self.other) if each is not None]
        # First the broker: a member that has yet to hear of a rebalance still has all that it had before.
        if self.joined() != len(members):
            return False
        shares = [each.assignment() for each in members if member_of(each).group_metadata is not None]
        return len(shares) == len(members) and all(shares) and sum(map(len, shares)) == PARTITIONS

    def joined(self) -> int | None:
        """The members of the group, None while it rebalances."""
        with Wire(self.broker.port) as wire:
            (group,) = wire.call(DescribeGroupsRequest(groups=[self.topic]), 5).groups
        return len(group.members) if group.group_state == "Stable" else None

    @invariant()
    def no_commit_was_wrong(self) -> None:
        if self.consumer is not None:
            partitions = [tp(self.topic, number) for number in range(PARTITIONS)]
            for partition, committed in self.consumer.committed(*partitions).items():
                if committed is not None:
                    self.check_commit(partition.partition, committed.offset)
        super().no_commit_was_wrong()

    def teardown(self) -> None:
        super().teardown()
        if self.other is not None:
            self.other.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first poll_arrow would import pyarrow on the event loop: on a busy machine that takes as long as a hang.
    importlib.import_module("ottla_client.arrow")
    monkeypatch.setattr(engine, "TICK", 0.002)


def run(machine: type[Model], examples: int, steps: int, **attributes: Any) -> None:
    settings = hypothesis_settings(
        max_examples=depth.examples(examples),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(type("Machine", (machine,), attributes), settings=settings)


@pytest.mark.parametrize("driver", [AsyncDriver, SyncDriver])
def test_no_commit_passes_a_record(driver: Any) -> None:
    run(OnFake, 12, 30, driver=driver)


@pytest.mark.parametrize("driver", [AsyncDriver, SyncDriver])
def test_no_commit_passes_a_record_on_a_broker(
    driver: Any, broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    run(OnBroker, 3, 20, driver=driver, broker=broker, new_topic=staticmethod(new_topic))
