"""A group's offsets: every version of the requests, retriable and permanent errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import pytest
from tests.client.group.conftest import QUICK, NewMember, partitions, shared_out
from tests.client.group.coordinating import FakeCoordinator

from ottla_client.cluster import Cluster
from ottla_client.deadline import Deadline
from ottla_client.errors import (
    CommitFailedError,
    ConfigurationError,
    GroupError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from ottla_client.group import OffsetsClient
from ottla_client.settings import ConnectionSettings
from ottla_client.types import OffsetAndMetadata, TopicPartition
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)
OFFSETS = {FIRST: OffsetAndMetadata(7, "note", 2), SECOND: OffsetAndMetadata(0)}


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator() as broker:
        yield broker


@pytest.fixture
async def new_offsets() -> AsyncIterator[Callable[..., OffsetsClient]]:
    """Makes clients for offsets; ``await`` isn't needed, the cluster is started by the first request."""
    made: list[Cluster] = []

    def make(bootstrap: str, group: str = "g") -> OffsetsClient:
        made.append(Cluster(bootstrap, ConnectionSettings(**QUICK)))
        return OffsetsClient(made[-1], group)

    yield make
    for cluster in made:
        await cluster.close()


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_fetching(
    fake: FakeCoordinator, new_offsets: Callable[..., OffsetsClient], version: int
) -> None:
    fake.versions[ApiKey.OFFSET_FETCH] = (version, version)
    offsets = new_offsets(fake.bootstrap)
    await offsets.commit(OFFSETS, Deadline(30))
    epoch = 2 if version >= 5 else None
    expected = {FIRST: OffsetAndMetadata(7, "note", epoch), SECOND: OffsetAndMetadata(0)}
    third = TopicPartition("t", 3)
    assert await offsets.fetch([SECOND, third, FIRST], Deadline(30), require_stable=True) == expected
    assert fake.of(OffsetFetchRequest)[-1].require_stable is (version >= 7)
    if version < 2:
        with pytest.raises(UnsupportedApiError, match=r"0\.10\.2"):
            await offsets.fetch(None, Deadline(30))
    else:
        assert await offsets.fetch(None, Deadline(30)) == expected
    assert await offsets.fetch([], Deadline(30)) == {}


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_committing(
    fake: FakeCoordinator, new_offsets: Callable[..., OffsetsClient], version: int
) -> None:
    fake.versions[ApiKey.OFFSET_COMMIT] = (version, version)
    await new_offsets(fake.bootstrap).commit(OFFSETS, Deadline(30))
    first = fake.committed["t", 0]
    assert (first.committed_offset, first.committed_metadata) == (7, "note")
    assert first.committed_leader_epoch == (2 if version >= 6 else -1)


@pytest.mark.parametrize("api", [ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
@pytest.mark.parametrize("fetching", [1, 7, 9])
async def test_retriable_errors_are_retried(
    fake: FakeCoordinator,
    new_offsets: Callable[..., OffsetsClient],
    api: ApiKey,
    code: ErrorCode,
    fetching: int,
) -> None:
    fake.versions[ApiKey.OFFSET_FETCH] = (fetching, fetching)
    fake.refuse[api] = [code] * 3
    offsets = new_offsets(fake.bootstrap)
    await offsets.commit({SECOND: OffsetAndMetadata(3)}, Deadline(30))
    found = await offsets.fetch([SECOND], Deadline(30), require_stable=True)
    assert found == {SECOND: OffsetAndMetadata(3)}
    moves = code in (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    )
    assert len(fake.of(FindCoordinatorRequest)) == (4 if moves else 1)


async def test_retries_end_at_the_deadline(
    fake: FakeCoordinator, new_offsets: Callable[..., OffsetsClient]
) -> None:
    offsets = new_offsets(fake.bootstrap)
    fake.refuse[ApiKey.OFFSET_COMMIT] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1000
    with pytest.raises(RequestTimeoutError, match=r"not committed.*COORDINATOR_LOAD_IN_PROGRESS"):
        await offsets.commit(OFFSETS, Deadline(0.1))
    fake.silent.add(ApiKey.OFFSET_FETCH)
    with pytest.raises(RequestTimeoutError, match="'g'"):
        await offsets.fetch(None, Deadline(0.1))


async def test_permanent_errors_are_raised_at_once(
    fake: FakeCoordinator, new_offsets: Callable[..., OffsetsClient]
) -> None:
    offsets = new_offsets(fake.bootstrap)
    fake.refuse[ApiKey.OFFSET_FETCH] = [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]
    with pytest.raises(GroupError, match="GROUP_AUTHORIZATION_FAILED"):
        await offsets.fetch([FIRST], Deadline(30))
    with pytest.raises(GroupError, match=r"t-0.*TOPIC_AUTHORIZATION_FAILED"):
        await offsets.fetch([FIRST], Deadline(30))
    with pytest.raises(ConfigurationError, match="-2"):
        await offsets.commit({FIRST: OffsetAndMetadata(-2)}, Deadline(30))


async def test_a_connection_that_breaks_is_made_again(
    fake: FakeCoordinator, new_offsets: Callable[..., OffsetsClient]
) -> None:
    offsets = new_offsets(fake.bootstrap)
    for offset in range(3):
        await offsets.commit({FIRST: OffsetAndMetadata(offset)}, Deadline(30))
        fake.cut()
    assert await offsets.fetch([FIRST], Deadline(30)) == {FIRST: OffsetAndMetadata(2)}


async def test_a_call_that_is_cancelled_leaves_the_next_one_right(
    fake: FakeCoordinator, new_offsets: Callable[..., OffsetsClient]
) -> None:
    for turns in range(1, 25):
        offsets = new_offsets(fake.bootstrap)
        committing = asyncio.create_task(offsets.commit(OFFSETS, Deadline(30)))
        for _ in range(turns):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait([committing])
        await offsets.commit({FIRST: OffsetAndMetadata(turns)}, Deadline(30))
        assert (await offsets.fetch([FIRST], Deadline(30)))[FIRST].offset == turns


# ---- a real broker


async def test_offsets_of_a_group_without_members(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    new_name: Callable[..., str],
    new_offsets: Callable[..., OffsetsClient],
) -> None:
    topic, other = new_topic(3), new_topic(1)
    offsets = new_offsets(broker.bootstrap, new_name("group"))
    assert await offsets.fetch(None, Deadline(30)) == {}
    wanted = {
        TopicPartition(topic, 0): OffsetAndMetadata(0, "zum Ersten", 0),
        TopicPartition(topic, 2): OffsetAndMetadata(2**40, "x" * 1000),
        TopicPartition(other, 0): OffsetAndMetadata(5),
    }
    await offsets.commit(wanted, Deadline(30))
    assert await offsets.fetch(None, Deadline(30), require_stable=True) == wanted
    assert await offsets.fetch([TopicPartition(topic, 1), TopicPartition(topic, 2)], Deadline(30)) == {
        TopicPartition(topic, 2): wanted[TopicPartition(topic, 2)]
    }
    with pytest.raises(GroupError, match="OFFSET_METADATA_TOO_LARGE"):
        await offsets.commit({TopicPartition(other, 0): OffsetAndMetadata(6, "x" * 5000)}, Deadline(30))


async def test_only_members_commit_while_there_are_some(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    new_name: Callable[..., str],
    new_offsets: Callable[..., OffsetsClient],
    new_member: NewMember,
) -> None:
    topic, group = new_topic(2), new_name("group")
    member = await new_member(broker.bootstrap, group, [topic])
    await shared_out([member], partitions(topic, 2))
    offsets = new_offsets(broker.bootstrap, group)
    wanted = {TopicPartition(topic, 0): OffsetAndMetadata(1)}
    with pytest.raises(CommitFailedError, match="has members"):
        await offsets.commit(wanted, Deadline(30))
    await member.commit(wanted, Deadline(30))
    assert await offsets.fetch(None, Deadline(30)) == wanted
    await member.leave()
    await offsets.commit({TopicPartition(topic, 0): OffsetAndMetadata(2)}, Deadline(30))
