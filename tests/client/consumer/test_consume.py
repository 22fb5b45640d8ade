"""Reading from a broker without a group: the start, the records, and their forms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.consumer.conftest import QUICK, numbered, offsets, put, take, tp
from tests.support.topics import create_topic
from tests.support.waiting import until

from ottla_client import Consumer, OffsetAndTimestamp, ShareConsumer
from ottla_client.errors import (
    BootstrapError,
    ClientError,
    ClosedError,
    ConfigurationError,
    DeserializationError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

New = Callable[..., Any]


async def test_records_one_by_one(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic()
    put(broker, topic, numbered(250), key=b"k")
    consumer = await new_consumer(topic)
    seen = []
    async for record in consumer:
        assert await consumer.position(tp(topic)) == record.offset + 1
        seen.append(record)
        if len(seen) == 250:
            break
    assert offsets(seen) == list(range(250))
    assert [record.value for record in seen] == numbered(250)
    assert {record.key for record in seen} == {b"k"}
    assert seen[7].timestamp == seen[0].timestamp + 7


async def test_ways_of_taking_records_can_be_mixed(
    broker: BrokerProcess, new_topic: New, new_consumer: New
) -> None:
    topic = new_topic()
    put(broker, topic, numbered(600))
    consumer = await new_consumer(topic)
    seen = []
    async for record in consumer:
        seen.append(record.offset)
        if len(seen) == 3:
            seen.append((await consumer.getone()).offset)
        elif len(seen) == 10:
            seen += offsets(await consumer.poll(1000, 150))
        elif len(seen) > 200:
            break
    for records in (await consumer.getmany(timeout_ms=1000, max_records=100)).values():
        seen += offsets(records)
    table = await consumer.poll_arrow(1000, 50)
    seen += table["offset"].to_pylist()
    seen += offsets(await take(consumer, 600 - len(seen)))
    assert seen == list(range(600))
    assert await consumer.poll(0) == []


async def test_many_partitions(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic(5)
    for partition in range(5):
        put(broker, topic, numbered(120), partition)
    consumer = await new_consumer(topic, max_poll_records=50)
    seen: dict[int, list[int]] = {partition: [] for partition in range(5)}
    while sum(map(len, seen.values())) < 600:
        records = await consumer.poll(5_000)
        assert 0 < len(records) <= 50
        for record in records:
            seen[record.partition].append(record.offset)
    assert all(each == list(range(120)) for each in seen.values())
    assert {consumer.lag(each) for each in consumer.assignment()} == {0}


async def test_getmany_is_by_partition(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic(2)
    for partition in range(2):
        put(broker, topic, numbered(10), partition)
    consumer = await new_consumer()
    consumer.assign([tp(topic, 0), tp(topic, 1)])
    only = await consumer.getmany(tp(topic, 1), timeout_ms=5_000)
    assert {partition: offsets(records) for partition, records in only.items()} == {
        tp(topic, 1): list(range(10))
    }
    rest = await consumer.getmany(timeout_ms=5_000)
    assert set(rest) == {tp(topic, 0)}
    with pytest.raises(ConfigurationError, match="not assigned"):
        await consumer.getmany(tp("other"))
    with pytest.raises(ConfigurationError, match="max_records"):
        await consumer.getmany(max_records=0)


async def test_an_empty_poll_ends_in_time(new_topic: New, new_consumer: New) -> None:
    consumer = await new_consumer(new_topic())
    assert await consumer.poll(0) == []
    assert await consumer.poll(30) == []
    assert await consumer.getmany() == {}
    assert (await consumer.poll_arrow(10)).num_rows == 0


async def test_records_that_come_later(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic()
    consumer = await new_consumer(topic, auto_offset_reset="latest")
    waiting = asyncio.create_task(consumer.getone())
    await until(lambda: bool(consumer.assignment()) and consumer.lag(tp(topic)) == 0)
    put(broker, topic, [b"new"])
    assert (await asyncio.wait_for(waiting, 60)).value == b"new"


@pytest.mark.parametrize("codec", range(5))
async def test_every_codec(broker: BrokerProcess, new_topic: New, new_consumer: New, codec: int) -> None:
    topic = new_topic()
    put(broker, topic, numbered(300), codec=codec)
    consumer = await new_consumer(topic)
    assert [record.value for record in await take(consumer, 300)] == numbered(300)


async def test_a_record_larger_than_a_fetch(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic()
    put(broker, topic, [b"a", b"x" * 300_000, b"b"], batch=1)
    consumer = await new_consumer(topic, max_partition_fetch_bytes=1_000, fetch_max_bytes=2_000)
    assert [len(record.value) for record in await take(consumer, 3)] == [1, 300_000, 1]


async def test_reading_ahead_is_bounded(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    """The next fetch doesn't wait for the application; the one after that does."""
    topic = new_topic()
    put(broker, topic, [b"x" * 1_000] * 100, batch=5)
    consumer = await new_consumer(max_partition_fetch_bytes=10_000, max_poll_records=1)
    consumer.assign([tp(topic)])
    state = consumer._engine.state(tp(topic))
    most = 0
    for _ in range(10):
        await until(lambda: state.buffered >= 10_000)
        most = max(most, state.buffered)
        await take(consumer, 5)
    assert 10_000 < most <= 20_000


# ---- where it begins


async def test_a_seek_is_obeyed_at_once(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic()
    put(broker, topic, numbered(1_000))
    consumer = await new_consumer(topic)
    seen = []
    async for record in consumer:
        seen.append(record.offset)
        if record.offset == 5:
            consumer.seek(tp(topic), 700)
        elif record.offset == 702:
            consumer.seek(tp(topic), 3)
        if len(seen) == 12:
            break
    assert seen == [0, 1, 2, 3, 4, 5, 700, 701, 702, 3, 4, 5]
    consumer.seek(tp(topic), 990)
    assert offsets(await take(consumer, 10)) == list(range(990, 1_000))
    await consumer.seek_to_beginning()
    assert await consumer.position(tp(topic)) == 0
    assert (await consumer.getone()).offset == 0
    await consumer.seek_to_end(tp(topic))
    assert await consumer.position(tp(topic)) == 1_000
    assert await consumer.poll(0) == []
    with pytest.raises(ConfigurationError, match="-1"):
        consumer.seek(tp(topic), -1)


async def test_a_seek_before_the_start(broker: BrokerProcess, new_topic: New) -> None:
    topic = new_topic()
    put(broker, topic, numbered(20))
    consumer = Consumer(bootstrap_servers=broker.bootstrap, **QUICK)
    consumer.assign([tp(topic)])
    consumer.seek(tp(topic), 15)
    async with consumer:
        assert offsets(await take(consumer, 5)) == [15, 16, 17, 18, 19]


async def test_offsets_by_time_and_ends(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic(2, retention_ms=-1)
    put(broker, topic, numbered(100), timestamp=1_000, batch=10)
    consumer = await new_consumer()
    empty, full = tp(topic, 1), tp(topic, 0)
    assert await consumer.beginning_offsets([empty, full]) == {empty: 0, full: 0}
    assert await consumer.end_offsets([empty, full]) == {empty: 0, full: 100}
    found = await consumer.offsets_for_times({full: 1_055, empty: 5})
    assert found[empty] is None
    assert isinstance(found[full], OffsetAndTimestamp)
    assert found[full][:2] == (55, 1_055)
    assert (await consumer.offsets_for_times({full: 9_999}))[full] is None
    with pytest.raises(ConfigurationError, match="-5"):
        await consumer.offsets_for_times({full: -5})
    with pytest.raises(UnknownTopicError, match="partition 2"):
        await consumer.end_offsets([tp(topic, 2)])


async def test_latest_begins_at_the_end(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic()
    put(broker, topic, numbered(10))
    consumer = await new_consumer(topic, auto_offset_reset="latest")
    assert await consumer.poll(0) == []
    await until(lambda: bool(consumer.assignment()))
    assert await consumer.position(tp(topic)) == 10


async def test_reset_none_raises(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic(2)
    put(broker, topic, numbered(10))
    consumer = await new_consumer(auto_offset_reset="none")
    consumer.assign([tp(topic, 0), tp(topic, 1)])
    consumer.seek(tp(topic, 1), 0)
    with pytest.raises(OffsetOutOfRangeError, match="no position") as caught:
        await consumer.poll(5_000)
    assert caught.value.offsets == {}
    consumer.seek(tp(topic, 0), 4)
    assert offsets(await take(consumer, 6)) == list(range(4, 10))
    consumer.seek(tp(topic, 0), 99)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await consumer.poll(5_000)
    assert caught.value.offsets == {tp(topic, 0): 99}
    put(broker, topic, [b"other"], 1)
    assert [record.value for record in await take(consumer, 1)] == [b"other"]


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", 10)])
async def test_a_position_that_the_log_does_not_have(
    broker: BrokerProcess, new_topic: New, new_consumer: New, policy: str, first: int
) -> None:
    topic = new_topic()
    put(broker, topic, numbered(10))
    consumer = await new_consumer(auto_offset_reset=policy)
    consumer.assign([tp(topic)])
    consumer.seek(tp(topic), 5_000)
    assert await consumer.position(tp(topic)) == 5_000
    waiting = asyncio.create_task(consumer.getone())
    async with asyncio.timeout(60):
        while await consumer.position(tp(topic)) == 5_000:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
    put(broker, topic, [b"new"])
    assert (await asyncio.wait_for(waiting, 60)).offset == first


# ---- what is read


async def test_paused_partitions_keep_what_is_buffered(
    broker: BrokerProcess, new_topic: New, new_consumer: New
) -> None:
    topic = new_topic(2)
    for partition in range(2):
        put(broker, topic, numbered(50), partition)
    consumer = await new_consumer(topic)
    first = await consumer.getone()
    here = first.topic_partition
    consumer.pause(here)
    assert consumer.paused() == {here}
    other = await take(consumer, 50)
    assert {record.partition for record in other} == {1 - here.partition}
    assert await consumer.poll(50) == []
    assert await consumer.position(here) == 1
    consumer.resume(here)
    assert consumer.paused() == frozenset()
    assert offsets(await take(consumer, 49)) == list(range(1, 50))


async def test_assignments_replace_one_another(
    broker: BrokerProcess, new_topic: New, new_consumer: New
) -> None:
    topic = new_topic(3)
    for partition in range(3):
        put(broker, topic, numbered(10), partition)
    consumer = await new_consumer()
    consumer.assign([tp(topic, 0)])
    assert len(await take(consumer, 4)) == 4
    consumer.assign([tp(topic, 0), tp(topic, 1)])
    assert sorted((record.partition, record.offset) for record in await take(consumer, 16)) == [
        *((0, offset) for offset in range(4, 10)),
        *((1, offset) for offset in range(10)),
    ]
    consumer.assign([tp(topic, 2)])
    assert {record.partition for record in await take(consumer, 10)} == {2}
    with pytest.raises(ConfigurationError, match="unsubscribe"):
        consumer.subscribe([topic])
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    with pytest.raises(ConfigurationError, match="nothing to read"):
        await consumer.poll()
    consumer.subscribe([topic])
    with pytest.raises(ConfigurationError, match="unsubscribe"):
        consumer.assign([tp(topic)])
    assert len(await take(consumer, 30)) == 30


async def test_an_assignment_that_changes_while_the_reader_connects(
    broker: BrokerProcess, new_topic: New, new_consumer: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    put(broker, topic, numbered(100))
    consumer = await new_consumer()
    cluster = consumer._engine.cluster
    asked, may_connect = asyncio.Event(), asyncio.Event()
    connect = cluster.dedicated

    async def slowly(*arguments: Any) -> Any:
        asked.set()
        await may_connect.wait()
        return await connect(*arguments)

    monkeypatch.setattr(cluster, "dedicated", slowly)
    consumer.assign([tp(topic)])
    consumer.seek(tp(topic), 0)
    await asked.wait()
    consumer.assign([])
    consumer.assign([tp(topic)])
    consumer.seek(tp(topic), 60)
    may_connect.set()
    assert offsets(await take(consumer, 20)) == list(range(60, 80))
    assert await consumer.position(tp(topic)) == 80


async def test_a_pattern_finds_new_topics(broker: BrokerProcess, new_name: New, new_consumer: New) -> None:
    prefix = new_name("pattern")
    create_topic(broker, f"{prefix}-a")
    put(broker, f"{prefix}-a", [b"a"])
    consumer = await new_consumer(metadata_max_age_ms=200)
    consumer.subscribe(pattern=f"{prefix}-.*")
    assert [record.value for record in await take(consumer, 1)] == [b"a"]
    create_topic(broker, f"{prefix}-b", 2)
    put(broker, f"{prefix}-b", [b"b"], 1)
    assert [record.value for record in await take(consumer, 1)] == [b"b"]
    assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}
    assert len(consumer.assignment()) == 3


async def test_what_the_brokers_know(new_topic: New, new_consumer: New) -> None:
    topic = new_topic(3)
    consumer = await new_consumer()
    assert await consumer.partitions_for(topic) == [0, 1, 2]
    assert await consumer.partitions_for_topic(topic) == [0, 1, 2]
    assert topic in await consumer.topics()
    async with asyncio.timeout(30):  # half of default_api_timeout_ms
        with pytest.raises(UnknownTopicError, match="nowhere"):
            await consumer.partitions_for("nowhere")


async def test_arrow_tables(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic(2)
    for partition in range(2):
        put(broker, topic, [*numbered(500), None], partition, key=b"k")
    consumer = await new_consumer(topic)
    rows = []
    while len(rows) < 1_002:
        table = await consumer.poll_arrow(5_000, 300, headers=True)
        assert 0 < table.num_rows <= 300
        rows += table.to_pylist()
    for partition in range(2):
        here = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in here] == list(range(501))
        assert [row["value"] for row in here] == [*numbered(500), None]
    assert rows[0]["topic"] == topic
    assert rows[0]["key"] == b"k"
    assert {consumer.lag(each) for each in consumer.assignment()} == {0}
    with pytest.raises(ConfigurationError, match="max_records"):
        await consumer.poll_arrow(0, 0)


# ---- errors


async def test_a_poison_record_and_the_way_past_it(
    broker: BrokerProcess, new_topic: New, new_consumer: New
) -> None:
    topic = new_topic()
    put(broker, topic, [b"1", b"2", b"x", b"4"])
    consumer = await new_consumer(topic, value_deserializer=int)
    seen = []
    failed: list[Any] = []
    while len(seen) < 3:
        try:
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 3:
                    break
        except DeserializationError as error:
            failed.append((error.value, error.offset, await consumer.position(error.partition)))
            if len(failed) == 2:
                consumer.seek(error.partition, error.offset + 1)
    assert seen == [1, 2, 4]
    assert failed == [(b"x", 2, 2)] * 2


async def test_two_tasks_at_once(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic()
    consumer = await new_consumer(topic)
    first = asyncio.create_task(consumer.getone())
    await asyncio.sleep(0.05)
    for attempt in (consumer.getone(), consumer.poll(), consumer.poll_arrow()):
        with pytest.raises(ClientError, match="another task"):
            await attempt
    put(broker, topic, [b"for the first"])
    assert (await asyncio.wait_for(first, 60)).value == b"for the first"


async def test_a_consumer_starts_once(broker: BrokerProcess, new_topic: New) -> None:
    consumer = Consumer(new_topic(), bootstrap_servers=broker.bootstrap, **QUICK)
    with pytest.raises(ClosedError, match="not started"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ClosedError, match="started before"):
            await consumer.start()
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0.05)
        await consumer.close()
        with pytest.raises(ClosedError):
            await waiting
        await consumer.close()
    with pytest.raises(ClosedError):
        await consumer.poll()
    with pytest.raises(ClosedError):
        async for _record in consumer:
            pass


async def test_closing_ends_an_iteration(broker: BrokerProcess, new_topic: New, new_consumer: New) -> None:
    topic = new_topic()
    put(broker, topic, numbered(10))
    consumer = await new_consumer(topic)
    seen = []
    async for record in consumer:
        seen.append(record.offset)
        if record.offset == 3:
            await consumer.close()
    assert seen == [0, 1, 2, 3]


async def test_a_consumer_that_is_not_closed_warns(broker: BrokerProcess, new_topic: New) -> None:
    import gc

    from tests.client.base.conftest import client_tasks

    consumer = Consumer(new_topic(), bootstrap_servers=broker.bootstrap, **QUICK)
    await consumer.start()
    await consumer.poll(10)
    with pytest.warns(ResourceWarning, match="not closed"):  # noqa: PT031
        del consumer
        gc.collect()
    await until(lambda: not client_tasks())


async def test_a_topic_that_does_not_exist(new_consumer: New, broker: BrokerProcess, new_topic: New) -> None:
    there = new_topic()
    put(broker, there, numbered(3))
    consumer = await new_consumer(default_api_timeout_ms=300)
    consumer.assign([tp("is-not-there"), tp(there), tp(there, 7)])
    assert len(await take(consumer, 3)) == 3
    with pytest.raises(RequestTimeoutError, match="is-not-there"):
        await consumer.position(tp("is-not-there"))
    errors = []
    async with asyncio.timeout(60):
        while len(errors) < 2:
            try:
                assert await consumer.poll(100) == []
            except UnknownTopicError as error:
                errors.append(str(error))
    assert any("'is-not-there' does not exist" in error for error in errors)
    assert any(f"{there!r} has no partition 7" in error for error in errors)
    put(broker, there, [b"on"])
    assert [record.value for record in await take(consumer, 1)] == [b"on"]


async def test_a_subscribed_topic_is_read_when_it_is_created(
    new_consumer: New,
    broker: BrokerProcess,
    new_name: New,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("ottla_client.consumer.metadata_monitor.GONE_AFTER", 0.1)
    name = new_name("later")
    consumer = await new_consumer(name)
    warning = f"topic '{name}' does not exist"
    await until(lambda: warning in caplog.text)
    create_topic(broker, name)
    put(broker, name, numbered(3))
    assert len(await take(consumer, 3)) == 3
    assert caplog.text.count(warning) == 1


async def test_no_broker() -> None:
    consumer = Consumer("t", bootstrap_servers="127.0.0.1:1", **{**QUICK, "default_api_timeout_ms": 300})
    with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        await consumer.start()


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.subscribe([]),
        lambda consumer: consumer.subscribe(),
        lambda consumer: consumer.subscribe(["t"], pattern="t"),
        lambda consumer: consumer.subscribe([""]),
        lambda consumer: consumer.assign(tp("t")),
        lambda consumer: consumer.seek(tp("t"), 1),
        lambda consumer: consumer.pause(tp("t")),
        lambda consumer: consumer.lag(tp("t")),
    ],
)
def test_invalid_calls(call: Callable[[Consumer], Any]) -> None:
    with pytest.raises(ConfigurationError):
        call(Consumer())


@pytest.mark.parametrize("consumer", [Consumer, ShareConsumer])
@pytest.mark.parametrize("name", ["bad name", "a" * 250, ".", "..", "t\n"])
def test_a_name_that_no_topic_can_have(consumer: Callable[..., Any], name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name: 1 to 249 letters"):
        consumer("t", name, group_id="g")


def test_servers_in_the_place_of_a_topic() -> None:
    for servers in ("127.0.0.1:19099", "a:1,b:2"):
        with pytest.raises(ConfigurationError, match=f"not a valid name.*use bootstrap_servers='{servers}'"):
            Consumer("t", servers)


def test_an_unknown_option_raises_and_warns_of_nothing() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        Consumer(nonsense=1)  # its destructor must not warn; pytest would fail


async def test_without_a_group_there_is_nothing_to_commit(new_topic: New, new_consumer: New) -> None:
    consumer = await new_consumer(new_topic())
    with pytest.raises(ConfigurationError, match="group_id"):
        await consumer.commit()
    with pytest.raises(ConfigurationError, match="group_id"):
        await consumer.committed()
