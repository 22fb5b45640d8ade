"""Admin's calls for topics and their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.client.admin.records import put
from tests.client.admin.waiting import eventually
from tests.support.processes import BrokerProcess

from ottla_client import Admin, TopicPartition
from ottla_client.admin import ConfigResource, NewPartitions, NewTopic, OffsetSpec, PartialError, TimedOffset
from ottla_client.errors import (
    BrokerError,
    ConfigurationError,
    CorruptBatchError,
    UnknownTopicError,
    UnsupportedApiError,
)
from ottla_client.requests import large_batch, log_walk
from ottla_protocol.errors import ErrorCode

Name = Callable[..., str]
Topic = Callable[..., str]


async def test_a_topic_from_its_making_to_its_end(admin: Admin, new_name: Name) -> None:
    name = new_name("made")
    new = NewTopic(name, 3, 1, {"retention.ms": "123456"})
    assert (await admin.create_topics([new], validate_only=True))[name].partitions == 3
    assert name not in await admin.list_topics()
    made = (await admin.create_topics([new]))[name]
    assert (made.name, made.partitions, made.replication_factor) == (name, 3, 1)
    await until_known(admin, name)
    topic = (await admin.describe_topics([name]))[name]
    assert topic.id == made.id
    assert sorted(topic.partitions) == [0, 1, 2]
    assert not topic.is_internal
    await admin.create_partitions({name: 5})
    await until_known(admin, name, 5)
    await admin.delete_topics([name])
    await eventually(admin.list_topics, lambda topics: name not in topics)
    with pytest.raises(UnknownTopicError, match=name):
        await admin.describe_topics([name])


async def until_known(admin: Admin, name: str, partitions: int = 1) -> None:
    async def count() -> int:
        found = (await admin.list_topics()).get(name)
        return 0 if found is None else len(found.partitions)

    await eventually(count, lambda number: number >= partitions)


async def test_partitions_and_replicas_may_be_left_to_the_broker(admin: Admin, new_name: Name) -> None:
    name = new_name("default")
    made = (await admin.create_topics([NewTopic(name)]))[name]
    assert (made.partitions, made.replication_factor) == (1, 1)


async def test_replicas_may_be_assigned(admin: Admin, new_name: Name) -> None:
    name = new_name("assigned")
    node = (await admin.describe_cluster()).nodes[0].id
    await admin.create_topics([NewTopic(name, assignment={0: [node], 1: [node]})])
    await until_known(admin, name, 2)
    await admin.create_partitions({name: NewPartitions(3, [[node]])}, validate_only=True)
    await admin.create_partitions({name: NewPartitions(3, [[node]])})
    await until_known(admin, name, 3)


async def test_one_thing_that_fails_raises_its_error(admin: Admin, new_topic: Topic) -> None:
    name = new_topic()
    with pytest.raises(BrokerError, match=name) as caught:
        await admin.create_topics([NewTopic(name)])
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(BrokerError) as caught:
        await admin.create_topics([NewTopic("no good?")])
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(BrokerError) as caught:
        await admin.create_partitions({name: 1})
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
    with pytest.raises(UnknownTopicError):
        await admin.delete_topics([name + "-not"])


async def test_errors_about_unknown_topics_suggest_similar_names(admin: Admin, new_name: Name) -> None:
    name = new_name("flightplans")
    await admin.create_topics([NewTopic(name)])
    await until_known(admin, name)
    wrong = name.replace("flight", "fligth")
    place = TopicPartition(wrong, 0)
    for call in (
        admin.describe_topics([wrong]),
        admin.delete_topics([wrong]),
        admin.create_partitions({wrong: 3}),
        admin.describe_configs([ConfigResource.topic(wrong)]),
        admin.list_offsets({place: OffsetSpec.LATEST}),
        admin.timestamps_of({place: 0}),
        admin.delete_records({place: 1}),
        admin.describe_producers([place]),
        admin.alter_group_offsets(new_name("group"), {place: 1}),
    ):
        with pytest.raises(UnknownTopicError, match=f"is it '{name}'"):
            await call
    with pytest.raises(PartialError) as caught:
        await admin.describe_topics([wrong, "nothing-like-it-2"])
    assert [str(error).count("is it") for error in caught.value.errors.values()] == [1, 0]
    with pytest.raises(UnknownTopicError, match="has no partition 7") as missing:
        await admin.list_offsets({TopicPartition(name, 7): OffsetSpec.LATEST})
    assert "is it" not in str(missing.value)


async def test_partial_errors_have_the_results_that_worked(
    admin: Admin, new_topic: Topic, new_name: Name
) -> None:
    old, new = new_topic(), new_name("new")
    with pytest.raises(PartialError, match=r"1 of 2 failed") as caught:
        await admin.create_topics([NewTopic(old), NewTopic(new)])
    assert list(caught.value.results) == [new]
    assert caught.value.errors[old].code is ErrorCode.TOPIC_ALREADY_EXISTS  # type: ignore[attr-defined]
    with pytest.raises(PartialError) as caught:
        await admin.delete_topics([old, new, old + "-not"])
    assert sorted(caught.value.results) == sorted([old, new])
    assert isinstance(caught.value.errors[old + "-not"], UnknownTopicError)


async def test_no_things_are_no_requests(admin: Admin) -> None:
    assert await admin.describe_topics([]) == {}
    assert await admin.create_topics([]) == {}
    assert await admin.list_offsets({}) == {}
    await admin.delete_topics([])


async def test_internal_topics_are_listed_on_demand(admin: Admin, new_name: Name) -> None:
    await admin.list_group_offsets(new_name("group"))  # has the offsets' topic made
    assert "__consumer_offsets" not in await admin.list_topics()
    assert (await admin.list_topics(include_internal=True))["__consumer_offsets"].is_internal


async def test_offsets_by_place_and_time(admin: Admin, broker: BrokerProcess, new_topic: Topic) -> None:
    name = new_topic(2, retention_ms=-1)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    put(broker, name, 0, 1000, 3000, 2000)
    put(broker, name, 0, 4000)

    async def at(spec: int) -> list[tuple[int, int]]:
        found = await admin.list_offsets({first: spec, second: spec})
        return [(found[p].offset, found[p].timestamp) for p in (first, second)]

    assert await at(OffsetSpec.EARLIEST) == [(0, -1), (0, -1)]
    assert await at(OffsetSpec.LATEST) == [(4, -1), (0, -1)]
    assert await at(OffsetSpec.MAX_TIMESTAMP) == [(3, 4000), (-1, -1)]
    assert await at(2500) == [(1, 3000), (-1, -1)]
    assert await at(4001) == [(-1, -1), (-1, -1)]
    found = await admin.list_offsets({first: OffsetSpec.LATEST}, isolation_level="read_committed")
    assert found[first].offset == 4
    with pytest.raises(ConfigurationError, match="isolation_level"):
        await admin.list_offsets({first: OffsetSpec.LATEST}, isolation_level="sometimes")
    with pytest.raises(ConfigurationError, match="milliseconds"):
        await admin.list_offsets({first: -7})
    with pytest.raises(UnknownTopicError, match="has 2 partitions"):
        await admin.list_offsets({TopicPartition(name, 2): OffsetSpec.LATEST})


@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_timestamps_by_offset(
    admin: Admin, broker: BrokerProcess, new_topic: Topic, codec: int
) -> None:
    name = new_topic(retention_ms=-1)
    partition = TopicPartition(name, 0)
    put(broker, name, 0, 1000, 3000, 2000, codec=codec)
    put(broker, name, 0, 4000, codec=codec)

    async def at(offset: int) -> TimedOffset | None:
        return (await admin.timestamps_of({partition: offset}))[partition]

    assert [await at(offset) for offset in range(4)] == [(0, 1000), (1, 3000), (2, 2000), (3, 4000)]
    assert await at(4) is None
    with pytest.raises(BrokerError) as caught:
        await at(5)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_piece_of_a_large_batch_is_decoded_for_a_timestamp(
    admin: Admin, broker: BrokerProcess, new_topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All records became objects, which took gigabytes for a batch of a few kilobytes."""
    decoded: list[int] = []
    decode = large_batch.decode_pieces

    def counting(pieces: Any, first: Any, **options: Any) -> Any:
        decoded.append(pieces[0][1].record_count)
        return decode(pieces, first, **options)

    monkeypatch.setattr(large_batch, "decode_pieces", counting)
    name = new_topic(retention_ms=-1)
    partition = TopicPartition(name, 0)
    put(broker, name, 0, *range(1_000, 36_000), codec=4)
    assert await admin.timestamps_of({partition: 23_456}) == {partition: (23_456, 24_456)}
    assert decoded == [large_batch.PIECE_RECORDS]
    monkeypatch.setattr(log_walk, "_BATCH_BYTES", 100_000)
    with pytest.raises(CorruptBatchError, match="decompresses to more than 100000 bytes"):
        await admin.timestamps_of({partition: 23_456})


async def test_many_timestamps_at_once(admin: Admin, broker: BrokerProcess, new_topic: Topic) -> None:
    name = new_topic(20, retention_ms=-1)
    for number in range(20):
        put(broker, name, number, 1000 + number)
    found = await admin.timestamps_of({TopicPartition(name, number): 0 for number in range(20)})
    assert [timed.timestamp for timed in found.values() if timed] == [1000 + n for n in range(20)]


async def test_records_are_deleted(admin: Admin, broker: BrokerProcess, new_topic: Topic) -> None:
    name = new_topic(2, retention_ms=-1)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    put(broker, name, 0, *range(5))
    put(broker, name, 1, *range(5))
    assert await admin.delete_records({first: 3, second: -1}) == {first: 3, second: 5}
    starts = await admin.list_offsets({first: OffsetSpec.EARLIEST, second: OffsetSpec.EARLIEST})
    assert [starts[p].offset for p in (first, second)] == [3, 5]
    with pytest.raises(PartialError) as caught:
        await admin.delete_records({first: 99, second: 5})
    assert caught.value.errors[first].code is ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[attr-defined]
    assert caught.value.results == {second: 5}


async def test_values_that_the_protocol_has_no_room_for(admin: Admin) -> None:
    with pytest.raises(UnsupportedApiError):
        await admin.create_topics([NewTopic("t", partitions=2**40)])
    with pytest.raises(UnsupportedApiError):
        await admin.delete_topics(["\udcff"])
    with pytest.raises(UnsupportedApiError):
        await admin.describe_groups(["g" * 40_000])
