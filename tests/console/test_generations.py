"""Groups whose place isn't an offset in Kafka's topic: share groups, and groups with offsets in ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock

import pytest
from tests.console.browsing import Browser, browsing
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_cli.groups.places import Kept, in_zookeeper, kept, lag_of
from ottla_client import Admin, Producer, TopicPartition
from ottla_client.admin import GroupDescription, GroupListing, MemberDescription, PartialError, PartitionLag
from ottla_client.errors import BrokerError, ConfigurationError, UnsupportedApiError
from ottla_client.types import COORDINATED, OffsetAndMetadata, TopicMetadata
from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper
from ottla_console.settings import WebSettings
from ottla_console.watch import ClusterWatch
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

Name = Callable[..., str]


@pytest.fixture
async def browser(broker: BrokerProcess) -> AsyncIterator[Browser]:
    async with browsing(broker.bootstrap) as opened:
        yield opened


@pytest.fixture
async def admin(broker: BrokerProcess) -> AsyncIterator[Admin]:
    async with Admin(broker.bootstrap) as opened:
        yield opened


@pytest.fixture
async def place(broker: BrokerProcess, new_topic: Name) -> TopicPartition:
    """A partition with five records."""
    topic = new_topic()
    async with Producer(broker.bootstrap) as producer:
        for _ in range(5):
            await producer.send_and_wait(topic, b"v")
    return TopicPartition(topic, 0)


def shared(broker: BrokerProcess, name: str, topic: str) -> None:
    """Make a share group, whose only member leaves."""
    with Wire(broker.port) as wire:
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4)
        join = ShareGroupHeartbeatRequest(group_id=name, member_id="m", subscribed_topic_names=[topic])
        wait_for(lambda: wire.call(join, 1).error_code == 0, "a member to join")
        leave = ShareGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=-1)
        assert wire.call(leave, 1).error_code == 0


async def shift(browser: Browser, name: str, place: TopicPartition) -> str:
    """Move a group from 1 to 3, after a look. Returns the page that asks."""
    form = (await browser.get(f"/group?id={name}")).hidden
    proposed = await browser.post("/group/reset", **form, to="shift", value="2")
    assert f"{place}: 1 → 3 (lag then 2)" in proposed.text
    assert (await browser.post("/confirm", **proposed.hidden)).status == 200
    return proposed.text


@pytest.mark.ottla_only
async def test_a_share_group(
    browser: Browser, broker: BrokerProcess, admin: Admin, place: TopicPartition, new_name: Name
) -> None:
    name = new_name("share")
    shared(broker, name, place.topic)
    await admin.alter_share_group_offsets(name, {place: 1})
    listed = (await browser.get(f"/groups?q={name}")).text
    assert '<td>share</td>\n<td class="num">4</td>' in listed
    page = (await browser.get(f"/group?id={name}")).text
    assert "share protocol" in page
    assert '<td class="num">1</td><td class="num">5</td>\n<td class="num">4</td>' in page
    assert "single records" in await shift(browser, name, place)
    assert (await admin.share_group_offsets(name))[place].start == 3


@pytest.mark.ottla_only
async def test_a_group_with_offsets_in_zookeeper(
    browser: Browser, admin: Admin, place: TopicPartition, new_name: Name
) -> None:
    name = new_name("old")
    await admin.alter_zookeeper_offsets(name, {place: 1})
    found = (await browser.get(f"/groups?q={name}")).text
    assert f'<a href="/group?id={name}">Look for offsets of {name} in ZooKeeper</a>' in found
    page = (await browser.get(f"/group?id={name}")).text
    assert "Its offsets are in ZooKeeper" in page
    assert "/group/delete" not in page
    assert '<td class="num">1</td><td class="num">5</td>\n<td class="num">4</td>' in page
    async with browser.events(f"/group?id={name}") as events:
        assert [event async for event in events] == []  # nor does the page ask for them
    assert "stop them first" in await shift(browser, name, place)
    assert await admin.list_zookeeper_offsets(name, [place]) == {place: 3}


@pytest.mark.ottla_only
async def test_groups_that_coordinate_in_zookeeper(
    broker: BrokerProcess, place: TopicPartition, new_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name("old")
    group = GroupInZooKeeper(("one",), {place: "one-0"}, {place: 2}, frozenset({place.topic}))

    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[None]:
        yield None

    async def read_groups(_: object, wanted: Callable[[str], bool]) -> dict[str, GroupInZooKeeper]:
        return {each: group for each in [name] if wanted(each)}

    monkeypatch.setattr("ottla_client.zookeeper_consumer.groups.connected", connected)
    monkeypatch.setattr("ottla_client.zookeeper_consumer.groups.read_groups", read_groups)
    async with browsing(broker.bootstrap, zookeeper="zk:2181") as browser:
        listed = (await browser.get(f"/groups?q={name}")).text
        assert '<td>Stable</td><td>zookeeper</td>\n<td class="num">3</td>' in listed
        page = (await browser.get(f"/group?id={name}")).text
        assert "Stable, coordinates in ZooKeeper, 1 member." in page
        assert '<td class="num">2</td><td class="num">5</td>\n<td class="num">3</td>' in page
        assert "/group/delete" not in page
    with pytest.raises(ConfigurationError, match="leave it out where people log in"):
        WebSettings(client={"security_protocol": "SASL_SSL"}, zookeeper="zk:2181")


async def test_a_group_that_is_gone_ends_its_page(browser: Browser, new_name: Name) -> None:
    name = new_name("gone")
    await browser.get("/")
    async with browser.events(f"/group?id={name}") as events:
        assert [event async for event in events] == [
            (
                "ended",
                f"unknown group {name!r} It may have been deleted. The list of groups has all that you may see.",
            )
        ]


async def test_a_group_whose_topics_are_deleted_has_no_lag_left() -> None:
    admin = AsyncMock(Admin)
    lag = PartitionLag(OffsetAndMetadata(1), 0, 3, 2, 1.0)
    admin.group_lag.side_effect = [{TopicPartition("t", 0): lag}, {}]
    watch = ClusterWatch(admin, 0.0)
    assert (await watch.lags_of({"g": Kept.OFFSETS}))["g"]
    assert watch.histories["g"].looks[-1].records == 2
    watch.forget()
    assert (await watch.lags_of({"g": Kept.OFFSETS}))["g"] == {}
    assert not watch.histories
    assert not watch.traces


async def test_a_group_of_the_coordinator_of_2012() -> None:
    place, admin = TopicPartition("t", 0), AsyncMock(Admin)
    member = MemberDescription("m", None, "c", "h", frozenset({place}))
    admin.describe_groups.return_value = {"g": GroupDescription("g", "Stable", COORDINATED, "", 1, (member,))}
    admin.list_zookeeper_offsets.return_value = {place: 7}
    where = kept(GroupListing("g", COORDINATED, "Stable", "classic", 1))
    assert where is Kept.ZOOKEEPER
    await lag_of(admin, "g", where)
    admin.list_zookeeper_offsets.assert_awaited_once_with("g", {place})
    admin.group_lag.assert_awaited_once_with("g", {place}, offsets={place: 7})


async def test_brokers_without_zookeeper_or_share_groups() -> None:
    admin = AsyncMock(Admin)
    admin.list_topics.return_value = {"t": TopicMetadata("t", None, {0: AsyncMock(), 1: AsyncMock()})}
    neither = BrokerError(ErrorCode.UNSUPPORTED_VERSION, "no ZooKeeper")
    refused = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right")
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    for error in (
        UnsupportedApiError("too new"),
        neither,
        PartialError("", {}, {one: neither, other: neither}),
    ):
        admin.list_zookeeper_offsets.side_effect = error
        assert await in_zookeeper(admin, "g") == {}
    admin.list_zookeeper_offsets.side_effect = PartialError("", {}, {one: neither, other: refused})
    with pytest.raises(PartialError):
        await in_zookeeper(admin, "g")
    admin.share_group_offsets.side_effect = UnsupportedApiError("Kafka 4.0")
    assert await lag_of(admin, "g", Kept.STARTS) == {}
