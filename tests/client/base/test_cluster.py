"""The cluster: bootstrap, metadata, coordinators, and the errors when they fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.base.conftest import until
from tests.client.base.fake import FakeBroker, Partition, Topic

from ottla_client import Admin, Consumer, Producer
from ottla_client.cluster import Backoff, Cluster, CoordinatorType, retrying
from ottla_client.cluster.addresses import parse_servers
from ottla_client.deadline import Deadline
from ottla_client.errors import (
    BootstrapError,
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    GroupError,
    RequestTimeoutError,
    UnknownTopicError,
)
from ottla_client.settings import ConnectionSettings
from ottla_client.suggestions import near_names
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

NewCluster = Callable[..., Cluster]


async def next_update(cluster: Cluster) -> None:
    """Wait for the cluster's next metadata."""
    updated = asyncio.Event()
    undo = cluster.on_change(updated.set)
    async with asyncio.timeout(60):
        await updated.wait()
    undo()


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 ,b, a:1,", [("a", 1), ("b", 9092)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        ("[::1]:9093,[fe80::1],::1", [("::1", 9093), ("fe80::1", 9092), ("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers(servers: Any, expected: list[tuple[str, int]]) -> None:
    assert parse_servers(servers) == expected


@pytest.mark.parametrize(
    "servers", ["", ",", [], "a:b", "a:0", "a:70000", ":9092", "[::1", "[::1]9092", [1], "http://a/b"]
)
def test_bootstrap_servers_that_are_none(servers: Any) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        parse_servers(servers)


def test_a_dict_of_options_gets_the_advice_to_use_keyword_arguments() -> None:
    options: Any = {"bootstrap.servers": "a:1", "sasl.password": "secret"}
    for call in (Producer, Admin, Consumer):
        with pytest.raises(ConfigurationError, match=r"a dict; give options as keyword arguments") as caught:
            call(options)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"security_protocol": "SASL_SSL"},
        {"security_protocol": "ssl"},
        {"ssl_context": object()},
        {"request_timeout_ms": 0},
        {"metadata_max_age_ms": "1"},
        {"client_id": None},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        ConnectionSettings(**options)


def test_near_names() -> None:
    names = {"orders", "Orders-eu", "payments", "audit"}
    assert near_names("order", names)[0] == "orders"
    assert near_names("ORDERS-EU", names)[0] == "Orders-eu"
    assert near_names("xyz", names) == []
    assert near_names("reset", ["reset-offsets", "list"]) == ["reset-offsets"]
    assert near_names("", names) == []
    assert near_names("ORDERS", ["orders", "Orders", "x"]) == ["Orders", "orders"]
    many = [f"{kind}-{number:05}" for kind in ("orders", "users") for number in range(10_000)]
    assert near_names("user-00017", many)[0] == "users-00017"


def test_back_off_grows_to_its_bound() -> None:
    backoff = Backoff(0.1, 1.0)
    assert backoff.after(0) == 0
    for failures, middle in [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (5000, 1.0)]:
        delays = {backoff.after(failures) for _ in range(100)}
        assert len(delays) > 1
        assert all(middle * 0.8 <= delay <= middle * 1.2 for delay in delays)


async def test_retrying() -> None:
    attempts = iter([ConnectionLostError("gone"), BrokerError(ErrorCode.NOT_COORDINATOR, "no"), None])

    async def attempt() -> str:
        error = next(attempts)
        if error is not None:
            raise error
        return "done"

    assert await retrying(attempt, Deadline(30), backoff=Backoff(0.001, 0.001), what="it") == "done"


async def test_retrying_ends_at_a_final_error_and_at_the_deadline() -> None:
    async def refused() -> None:
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")

    async def lost() -> None:
        raise ConnectionLostError("gone")

    async def silent() -> None:
        await asyncio.Event().wait()

    backoff = Backoff(0.001, 0.01)
    with pytest.raises(BrokerError):
        await retrying(refused, Deadline(30), backoff=backoff, what="it")
    with pytest.raises(RequestTimeoutError, match=r"it: gone \(tried \d+ times\)") as caught:
        await retrying(lost, Deadline(0.05), backoff=backoff, what="it")
    assert isinstance(caught.value.__cause__, ConnectionLostError)
    with pytest.raises(RequestTimeoutError, match=r"it: no answer \(tried once\)"):
        await retrying(silent, Deadline(0.05), backoff=backoff, what="it")


async def test_the_last_of_the_bootstrap_servers_works(
    fake: FakeBroker, new_cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla_client.cluster.cluster.STAGGER", 0.02)
    async with FakeBroker() as web, FakeBroker() as mute:
        web.script, mute.script = _web, _mute
        cluster = new_cluster(f"127.0.0.2:{fake.port},{web.bootstrap},{mute.bootstrap},{fake.bootstrap}")
        await cluster.start(Deadline(30))
        assert list(cluster.nodes) == [1]
        assert (cluster.controller_id, cluster.cluster_id) == (1, "fake")
        assert fake.connections == 1  # the bootstrap connection became the broker's


async def _web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(4)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def _mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(1000):
        pass


async def test_no_bootstrap_server_answers(
    fake: FakeBroker, new_cluster: NewCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeBroker() as web, FakeBroker() as mute:
        web.script, mute.script = _web, _mute
        cluster = new_cluster(f"127.0.0.2:{fake.port},{web.bootstrap},{mute.bootstrap}")
        with pytest.raises(BootstrapError) as caught:
            await cluster.start(Deadline(0.3))
    text = str(caught.value)
    assert f"127.0.0.2:{fake.port}: connection refused" in text
    assert f"{web.bootstrap} does not answer as a Kafka broker" in text
    assert f"{mute.bootstrap}: no answer" in text
    with pytest.raises(ClosedError):
        await cluster.fetch_topics(None, Deadline(1))


async def test_servers_that_fail_alike_share_a_sentence(new_cluster: NewCluster) -> None:
    servers = "127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3"
    with pytest.raises(BootstrapError, match=f": {servers}: connection refused; is a broker running there"):
        await new_cluster(servers).start(Deadline(0.3))


async def test_a_broker_that_hangs_up_before_a_login(fake: FakeBroker, new_cluster: NewCluster) -> None:
    def hang_up(header: Any, request: Any) -> None:
        fake.cut()

    fake.answers[ApiKey.METADATA] = hang_up
    with pytest.raises(
        BootstrapError, match=r"broke: .*; if its listener wants a login, set security_protocol"
    ):
        await new_cluster(fake.bootstrap).start(Deadline(0.3))


async def test_servers_that_are_not_brokers_fail_at_once(new_cluster: NewCluster) -> None:
    async with FakeBroker() as web:
        web.script = _web
        with pytest.raises(BootstrapError, match="web server"):
            await new_cluster(web.bootstrap).start(Deadline(1000))


async def test_a_broker_that_comes_later(
    new_cluster: NewCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla_client.cluster.cluster.QUIET_SECONDS", 0.0)
    broker = FakeBroker()
    await broker.start()
    await broker.stop()
    cluster = new_cluster(broker.bootstrap, reconnect_backoff_max_ms=20)
    with caplog.at_level(logging.WARNING):
        starting = asyncio.ensure_future(cluster.start(Deadline(30)))
        await until(lambda: "connection refused; trying again" in caplog.text)
    async with broker:
        await starting
        assert list(cluster.nodes) == [1]


async def test_topics_and_leaders(fake: FakeBroker, new_cluster: NewCluster) -> None:
    fake.topics["a"] = Topic(b"1" * 16, {1: Partition(2, 5), 0: Partition(1, 3), 2: Partition(-1, 4)})
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    assert cluster.topic("a") is None
    topics = await cluster.fetch_topics(["a", "b"], Deadline(30))
    topic = topics["a"]
    assert topic == cluster.topic("a")
    assert list(topic.partitions) == [0, 1, 2]
    assert [cluster.leader("a", number) for number in range(4)] == [1, 2, None, None]
    assert topics["b"].error == cluster.topic_error("b") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.topic("b") is None
    # It goes: from the cache too.
    del fake.topics["a"]
    await cluster.fetch_topics(["a"], Deadline(30))
    assert cluster.topic("a") is cluster.leader("a", 0) is None


@pytest.mark.parametrize("version", range(13))
async def test_every_version_of_metadata(fake: FakeBroker, new_cluster: NewCluster, version: int) -> None:
    fake.versions[ApiKey.METADATA] = (0, version)
    fake.topics["a"] = Topic()
    fake.topics["b"] = Topic(b"2" * 16)
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    assert (cluster.controller_id is None) == (version < 1)
    topic = (await cluster.fetch_topics(["a"], Deadline(30)))["a"]
    assert topic.id == (b"i" * 16 if version >= 10 else None)
    assert topic.partitions[0].leader_epoch == (0 if version >= 7 else None)
    assert cluster.leader("a", 0) == 1
    assert sorted(await cluster.fetch_topics(None, Deadline(30))) == ["a", "b"]
    await cluster.fetch_topics(["a"], Deadline(30), allow_auto_create=True)
    assert fake.requests[-1].allow_auto_topic_creation


async def test_leader_epochs_never_go_down(fake: FakeBroker, new_cluster: NewCluster) -> None:
    fake.topics["a"] = Topic(b"1" * 16, {0: Partition(2, 5), 1: Partition(2, 5)})
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    await cluster.fetch_topics(["a"], Deadline(30))
    # A broker that lags behind.
    fake.topics["a"] = Topic(b"1" * 16, {0: Partition(1, 4), 1: Partition(1, 6)})
    answer = await cluster.fetch_topics(["a"], Deadline(30))
    assert [cluster.leader("a", 0), cluster.leader("a", 1)] == [2, 1]
    assert answer["a"].partitions[0].leader_epoch == 5
    # The topic is made again.
    fake.topics["a"] = Topic(b"2" * 16, {0: Partition(3, 0)})
    await cluster.fetch_topics(["a"], Deadline(30))
    assert [cluster.leader("a", 0), cluster.leader("a", 1)] == [3, None]
    topic = cluster.topic("a")
    assert topic is not None
    assert topic.id == b"2" * 16


async def test_equal_questions_are_asked_once(fake: FakeBroker, new_cluster: NewCluster) -> None:
    fake.topics["a"] = Topic()
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    before = fake.asked[ApiKey.METADATA]
    answers = await asyncio.gather(*(cluster.fetch_topics(["a"], Deadline(30)) for _ in range(50)))
    assert fake.asked[ApiKey.METADATA] == before + 1
    assert all(answer["a"].name == "a" for answer in answers)


async def test_a_question_that_was_sent_is_not_joined(fake: FakeBroker, new_cluster: NewCluster) -> None:
    """Joining it would miss later changes."""
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    before = fake.asked[ApiKey.METADATA]
    early = asyncio.ensure_future(cluster.fetch_topics(["a"], Deadline(30)))
    await until(lambda: fake.asked[ApiKey.METADATA] == before + 1)
    fake.topics["a"] = Topic()
    late = await cluster.fetch_topics(["a"], Deadline(30))
    assert not late["a"].error
    await early


async def test_waiting_for_a_topic(fake: FakeBroker, new_cluster: NewCluster) -> None:
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    waiting = asyncio.ensure_future(cluster.wait_for_topic("orders", Deadline(30)))
    before = fake.asked[ApiKey.METADATA]
    await until(lambda: fake.asked[ApiKey.METADATA] > before + 1)
    fake.topics["orders"] = Topic(error=ErrorCode.LEADER_NOT_AVAILABLE)
    await asyncio.sleep(0.02)
    fake.topics["orders"] = Topic(partitions={0: Partition(-1, 0, ErrorCode.LEADER_NOT_AVAILABLE)})
    await asyncio.sleep(0.02)
    assert not waiting.done()
    fake.topics["orders"].partitions[1] = Partition()
    assert (await waiting).partitions[1].leader == 1


async def test_a_topic_that_does_not_come(fake: FakeBroker, new_cluster: NewCluster) -> None:
    fake.topics = {"orders": Topic(), "payments": Topic()}
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    with pytest.raises(UnknownTopicError, match=r"'order' does not exist \(is it 'orders'\?\)"):
        await cluster.wait_for_topic("order", Deadline(0.5))
    with pytest.raises(UnknownTopicError, match=r"'order' does not exist \(is it 'orders'\?\)"):
        await cluster.wait_for_topic("order", Deadline(0.5), allow_auto_create=True)
    with pytest.raises(UnknownTopicError, match="'xyz' does not exist; create it"):
        await cluster.wait_for_topic("xyz", Deadline(0.5))
    fake.topics["leaderless"] = Topic(partitions={0: Partition(-1)})
    with pytest.raises(RequestTimeoutError, match="none of its partitions has a leader"):
        await cluster.wait_for_topic("leaderless", Deadline(0.5))
    fake.topics["secret"] = Topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        await cluster.wait_for_topic("secret", Deadline(1000))


async def test_topics_of_interest_are_kept_fresh(fake: FakeBroker, new_cluster: NewCluster) -> None:
    fake.topics["a"] = Topic(partitions={0: Partition(1, 0)})
    cluster = new_cluster(fake.bootstrap, metadata_max_age_ms=30)
    await cluster.start(Deadline(30))
    changes: list[int | None] = []
    undo = cluster.on_change(lambda: changes.append(cluster.leader("a", 0)))
    cluster.interest(["a"])
    cluster.interest(["a"])
    cluster.disinterest(["a"])
    await next_update(cluster)
    fake.topics["a"].partitions[0] = Partition(2, 1)
    await until(lambda: cluster.leader("a", 0) == 2)
    assert changes[-1] == 2
    undo()
    undo()
    count = len(changes)
    cluster.disinterest(["a"])
    assert cluster.topic("a") is None
    await next_update(cluster)
    assert len(changes) == count
    assert fake.requests[-1].topics == []


async def test_stale_metadata_is_requested_once(fake: FakeBroker, new_cluster: NewCluster) -> None:
    fake.topics["a"] = Topic()
    cluster = new_cluster(fake.bootstrap, retry_backoff_ms=50, retry_backoff_max_ms=50)
    await cluster.start(Deadline(30))
    before = fake.asked[ApiKey.METADATA]
    for _ in range(1000):
        cluster.stale("a")
        cluster.stale()
    await next_update(cluster)
    assert fake.asked[ApiKey.METADATA] == before + 1
    assert cluster.leader("a", 0) == 1


async def test_first_topics_of_interest_wait_for_no_back_off(
    fake: FakeBroker, new_cluster: NewCluster
) -> None:
    fake.topics["a"] = Topic()
    cluster = new_cluster(fake.bootstrap, retry_backoff_ms=600_000, retry_backoff_max_ms=600_000)
    await cluster.start(Deadline(30))
    cluster.interest(["a"])
    await next_update(cluster)
    assert cluster.leader("a", 0) == 1


async def test_leaderless_topics_of_interest_are_asked_for_again(
    fake: FakeBroker, new_cluster: NewCluster
) -> None:
    fake.topics["a"] = Topic(partitions={0: Partition(-1)})
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    cluster.interest(["a", "later"])
    await next_update(cluster)
    fake.topics["a"] = Topic(partitions={0: Partition(1, 1)})
    fake.topics["later"] = Topic(b"2" * 16)
    await until(lambda: cluster.leader("a", 0) == cluster.leader("later", 0) == 1)


async def test_a_lost_connection_makes_the_metadata_stale(fake: FakeBroker, new_cluster: NewCluster) -> None:
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    before = fake.asked[ApiKey.METADATA]
    fake.cut()
    await until(lambda: fake.asked[ApiKey.METADATA] > before)


async def test_a_callback_that_fails_is_reported(
    fake: FakeBroker, new_cluster: NewCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    cluster.on_change(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    await cluster.fetch_topics([], Deadline(30))
    assert "a callback for new metadata failed" in caplog.text


async def test_an_advertised_address_that_is_unreachable(
    fake: FakeBroker,
    new_cluster: NewCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error says what to do, and a warning says it while calls still wait."""
    monkeypatch.setattr("ottla_client.cluster.cluster.QUIET_SECONDS", 0.0)
    fake.nodes = {1: ("127.0.0.9", fake.port)}
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    with pytest.raises(ConnectError) as caught:
        await cluster.request(1, ListGroupsRequest(), Deadline(30))
    text = str(caught.value)
    assert f"127.0.0.9:{fake.port}: connection refused" in text
    assert f"broker 1 (according to {fake.bootstrap})" in text
    assert "advertised.listeners" in text
    for _ in range(2):
        with pytest.raises(ConnectError):
            await cluster.request(1, ListGroupsRequest(), Deadline(30))
    assert [each.getMessage() for each in caplog.records].count(f"{text}; trying again") == 1
    # Metadata still comes from where it came from first.
    await cluster.fetch_topics(None, Deadline(30))


async def test_requests(fake: FakeBroker, new_cluster: NewCluster) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse(
        throttle_time_ms=header.api_version
    )
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    assert (await cluster.request(None, ListGroupsRequest(), Deadline(30))).throttle_time_ms == 5
    assert (await cluster.request(1, ListGroupsRequest(), Deadline(30), version=2)).throttle_time_ms == 2
    shared, own = await cluster.connection(1, Deadline(30)), await cluster.dedicated(1, Deadline(30))
    assert shared is await cluster.connection(1, Deadline(30)) is not own
    assert own is await cluster.dedicated(1, Deadline(30))
    with pytest.raises(ConnectError, match=r"broker 7 is not among .*\(1\)"):
        await cluster.connection(7, Deadline(30))
    # One caller's short deadline is no reason to close what others use.
    fake.answers[ApiKey.LIST_GROUPS] = fake.answers[ApiKey.METADATA] = lambda header, request: None
    with pytest.raises(RequestTimeoutError, match="ListGroupsRequest in time"):
        await cluster.request(1, ListGroupsRequest(), Deadline(0.02))
    assert not shared.closed


async def test_connections_are_opened_once_for_all(fake: FakeBroker, new_cluster: NewCluster) -> None:
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    before = fake.connections
    opened = await asyncio.gather(*(cluster.dedicated(1, Deadline(30)) for _ in range(20)))
    assert len(set(opened)) == 1
    assert fake.connections == before + 1


async def test_reconnecting_waits_longer_each_time(fake: FakeBroker, new_cluster: NewCluster) -> None:
    cluster = new_cluster(fake.bootstrap, reconnect_backoff_ms=60_000, reconnect_backoff_max_ms=60_000)
    await cluster.start(Deadline(30))
    await fake.stop()
    await until(lambda: cluster._pool.error(1) is not None or cluster._pool.open_connection(1) is None)
    with pytest.raises(ConnectError):
        await cluster.connection(1, Deadline(0.5))
    with pytest.raises(ConnectError, match=r"not connected in time; before that: .*refused"):
        await cluster.connection(1, Deadline(0.01))


async def test_another_broker_is_asked_when_one_is_gone(fake: FakeBroker, new_cluster: NewCluster) -> None:
    async with FakeBroker() as second:
        nodes = {1: ("127.0.0.1", fake.port), 2: ("127.0.0.1", second.port)}
        fake.nodes, second.nodes = nodes, nodes
        cluster = new_cluster(fake.bootstrap)
        await cluster.start(Deadline(30))
        await fake.stop()
        second.topics["a"] = Topic()
        topic = await cluster.wait_for_topic("a", Deadline(30))
        assert topic.name == "a"


async def test_the_bootstrap_servers_are_asked_again_when_all_known_brokers_are_gone(
    new_cluster: NewCluster,
) -> None:
    """The cluster has moved behind the addresses that the user gave (KIP-899)."""
    front = FakeBroker()
    async with FakeBroker() as old:
        front.nodes = {1: ("127.0.0.1", old.port)}
        await front.start()
        cluster = new_cluster(front.bootstrap)
        await cluster.start(Deadline(30))
        await cluster.connection(1, Deadline(30))
    await front.stop()
    async with front, FakeBroker() as new:
        front.nodes = {2: ("127.0.0.1", new.port)}
        await cluster.fetch_topics([], Deadline(30))
        assert list(cluster.nodes) == [2]
        assert (await cluster.connection(2, Deadline(30))).port == new.port


async def test_bootstrap_servers_that_a_registry_names(fake: FakeBroker, new_cluster: NewCluster) -> None:
    """All known addresses are of brokers that are gone, but a registry knows the new ones."""
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    await fake.stop()
    async with FakeBroker() as moved:
        cluster.use_bootstrap([("127.0.0.1", moved.port)])
        await cluster.fetch_topics([], Deadline(30))
        assert (cluster.nodes[1].host, cluster.nodes[1].port) == ("127.0.0.1", moved.port)


async def test_metadata_with_missing_replicas_is_refreshed_soon(
    fake: FakeBroker, new_cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers that come back may be all that is left when those of today are gone."""
    monkeypatch.setattr("ottla_client.cluster.cluster.INCOMPLETE_SECONDS", 0.01)
    fake.topics["t"] = Topic(partitions={0: Partition(replicas=(1, 2))})
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    cluster.interest(["t"])
    await until(lambda: fake.asked[ApiKey.METADATA] > 5)
    fake.nodes = {1: ("127.0.0.1", fake.port), 2: ("127.0.0.2", fake.port)}
    await until(lambda: 2 in cluster.nodes)


async def test_a_broker_that_changes_its_address(fake: FakeBroker, new_cluster: NewCluster) -> None:
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    async with FakeBroker() as moved:
        fake.nodes = {1: ("127.0.0.1", moved.port)}
        await cluster.fetch_topics([], Deadline(30))
        assert (await cluster.dedicated(1, Deadline(30))).port == moved.port


@pytest.mark.parametrize("version", range(7))
async def test_coordinators(fake: FakeBroker, new_cluster: NewCluster, version: int) -> None:
    fake.versions[ApiKey.FIND_COORDINATOR] = (0, version)
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    fake.coordinator = (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    waiting = [asyncio.ensure_future(cluster.coordinator("g", Deadline(30))) for _ in range(5)]
    await until(lambda: fake.asked[ApiKey.FIND_COORDINATOR] > 1)
    fake.coordinator = (1, 0)
    assert await asyncio.gather(*waiting) == [1] * 5
    asked = fake.asked[ApiKey.FIND_COORDINATOR]
    assert await cluster.coordinator("g", Deadline(30)) == 1
    assert fake.asked[ApiKey.FIND_COORDINATOR] == asked
    cluster.forget_coordinator("g")
    fake.coordinator = (-1, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(GroupError, match=r"group .g.: this user is not allowed to use it"):
        await cluster.coordinator("g", Deadline(30))
    fake.coordinator = (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(RequestTimeoutError, match=r"coordinator of group 'g' .*COORDINATOR_NOT_AVAILABLE"):
        await cluster.coordinator("g", Deadline(0.05))


async def test_why_there_is_no_coordinator(
    fake: FakeBroker,
    new_cluster: NewCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("ottla_client.cluster.cluster.QUIET_SECONDS", 0.0)
    fake.versions[ApiKey.END_TXN] = (0, 3)
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    for topic, why in (
        (None, r"offsets\.topic\.replication\.factor can't be above the number of brokers \(1\)"),
        (
            Topic(b"1" * 16, {0: Partition(1, 0), 1: Partition(-1, 0)}),
            "1 of 2 partitions of __consumer_offsets",
        ),
        (Topic(b"1" * 16, {0: Partition(1, 0)}), r"COORDINATOR_NOT_AVAILABLE \("),
    ):
        if topic is not None:
            fake.topics["__consumer_offsets"] = topic
        fake.coordinator = (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        caplog.clear()
        with pytest.raises(RequestTimeoutError, match=why):
            await cluster.coordinator("g", Deadline(1))
        assert len([each for each in caplog.records if "trying again" in each.getMessage()]) == 1
        fake.coordinator = (1, 0)
        await cluster.coordinator("g", Deadline(30))
        cluster.forget_coordinator("g")
    fake.coordinator = (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with pytest.raises(RequestTimeoutError, match=r"transaction\.state\.log\.replication\.factor"):
        await cluster.coordinator("t", Deadline(1), CoordinatorType.TRANSACTION)


async def test_a_coordinator_that_the_metadata_does_not_know_yet(
    fake: FakeBroker, new_cluster: NewCluster
) -> None:
    cluster = new_cluster(fake.bootstrap)
    await cluster.start(Deadline(30))
    fake.nodes[2] = ("127.0.0.1", fake.port)
    fake.coordinator = (2, 0)
    assert await cluster.coordinator("g", Deadline(30)) == 2
    assert (await cluster.dedicated(2, Deadline(30))).port == fake.port


async def test_a_real_broker(
    broker: Any, new_cluster: NewCluster, new_topic: Callable[..., str], new_name: Any
) -> None:
    name = new_topic(3, prefix="cluster")
    cluster = new_cluster(broker.bootstrap)
    await cluster.start(Deadline(30))
    topic = await cluster.wait_for_topic(name, Deadline(30))
    assert list(topic.partitions) == [0, 1, 2]
    assert topic.id is not None
    assert {cluster.leader(name, number) for number in range(3)} == set(cluster.nodes)
    assert name in await cluster.fetch_topics(None, Deadline(30))
    assert await cluster.coordinator(new_name("group"), Deadline(20)) in cluster.nodes
    with pytest.raises(UnknownTopicError, match=name):
        await cluster.wait_for_topic(name + "x", Deadline(0.2))
    auto = await cluster.wait_for_topic(new_name("auto"), Deadline(30), allow_auto_create=True)
    assert auto.partitions[0].leader in cluster.nodes


async def test_a_real_broker_that_is_killed_and_comes_back(
    own_broker: Callable[..., Any], new_cluster: NewCluster
) -> None:
    broker = own_broker()
    cluster = new_cluster(broker.bootstrap)
    await cluster.start(Deadline(30))
    await cluster.wait_for_topic("a", Deadline(30), allow_auto_create=True)
    cluster.interest(["a"])
    broker.kill()
    with pytest.raises((ConnectError, ConnectionLostError, RequestTimeoutError)):
        await cluster.request(None, ListGroupsRequest(), Deadline(0.1))
    await asyncio.to_thread(broker.start)
    await next_update(cluster)
    topic = await cluster.wait_for_topic("a", Deadline(30))
    assert topic.partitions[0].leader in cluster.nodes
