"""Metrics that clients push (KIP-714): who is to push what, which pushes are refused, and what /metrics shows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.metrics import Scraped
from tests.support.otlp import gauge, metrics_data, number, summed

from ottla_broker.api_parts import client_telemetry
from ottla_broker.api_parts.client_telemetry import CODECS, ClientTelemetry, series_of
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metrics.clients import ClientCollector
from ottla_broker.metrics.exposition import Exposition
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.otlp import Point
from ottla_protocol.records.compression import compress
from ottla_protocol.schema import ZERO_UUID

PREFIX = "org.apache.kafka.producer."


class Threads:
    """Runs functions at once."""

    def run(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


class World:
    def __init__(self, most_series: int = 100) -> None:
        self.clock = FakeClock()
        self.metadata = MetadataCache()
        threads: Any = Threads()
        self.telemetry = ClientTelemetry(
            self.metadata, threads, self.clock, random.Random(1), 1000, most_series
        )

    def connection(self, client_id: str = "c", software: str = "x", port: int = 40001) -> Any:
        made = SimpleNamespace(
            id=f"127.0.0.1:9092-127.0.0.1:{port}-0-7",
            client_id=client_id,
            client_host="127.0.0.1",
            on_close={},
        )
        self.telemetry.introduce(made, software, "1.0")
        return made

    def put(self, name: str = "s", **settings: str) -> None:
        self.metadata.put_client_metrics(
            name, {key.replace("_", "."): value for key, value in settings.items()}
        )

    def ask(self, instance_id: bytes = ZERO_UUID, connection: Any = None) -> Any:
        """The id and what is subscribed."""
        return self.telemetry.subscribe(instance_id, connection or self.connection())

    def refused(self, instance_id: bytes) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.ask(instance_id)
        return caught.value.code

    async def push(
        self,
        instance_id: bytes,
        subscription_id: int,
        data: bytes = b"",
        codec: int = 0,
        *,
        terminating: bool = False,
    ) -> ErrorCode:
        try:
            await self.telemetry.push(
                instance_id, subscription_id, terminating, codec, data, self.connection()
            )
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def scrape(self, max_series: int = 1000) -> Scraped:
        sources: Any = SimpleNamespace(telemetry=self.telemetry)
        out = Exposition(max_series)
        for _ in ClientCollector(sources).collect(out):
            pass
        return Scraped(b"".join(out.chunks()).decode())


@pytest.fixture
def world() -> World:
    return World()


def test_without_subscriptions_nothing_is_asked_for(world: World) -> None:
    instance_id, instance = world.ask()
    assert instance_id != ZERO_UUID
    assert (instance.metrics, instance.interval_ms) == ((), 300_000)


def test_what_matches_is_put_together(world: World) -> None:
    world.put("a", metrics=f"{PREFIX}a,{PREFIX}b", interval_ms="60000")
    world.put("b", metrics=f"{PREFIX}b", interval_ms="2000", match="client_id=billing-[0-9]+")
    world.put("c", metrics="*", match="client_software_name=other,client_id=.*")
    world.put("d", metrics="d", match="client_source_port=40001,client_source_address=127\\..*")
    _, found = world.ask(connection=world.connection("billing-7", port=5))
    assert (found.metrics, found.interval_ms) == ((f"{PREFIX}a", f"{PREFIX}b"), 2000)
    _, found = world.ask(connection=world.connection("xbilling-7"))
    assert (found.metrics, found.interval_ms) == (("d", f"{PREFIX}a", f"{PREFIX}b"), 60_000)
    _, found = world.ask(connection=world.connection(software="other"))
    assert found.metrics == ("*",)


def test_asking_too_early_is_throttled_unless_subscriptions_change(world: World) -> None:
    instance_id, first = world.ask()
    assert world.refused(instance_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.put(metrics="*", interval_ms="1000")
    _, second = world.ask(instance_id)
    assert second.subscription_id != first.subscription_id
    assert world.refused(instance_id) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    world.clock.advance(1)
    world.ask(instance_id)
    assert world.telemetry.throttled == 2


@pytest.mark.parametrize("codec", [0, *CODECS])
async def test_a_push_is_shown(world: World, codec: int) -> None:
    world.put(metrics="*", interval_ms="1000")
    instance_id, found = world.ask(connection=world.connection('a "client"'))
    data = metrics_data(
        [
            gauge(f"{PREFIX}queue.size", number(2.5, {"topic": "t", "client_id": "x"})),
            summed(f"{PREFIX}record.send", number(10), monotonic=True, delta=False),
            summed("other", number(3), monotonic=True, delta=True),
        ]
    )
    sent = compress(codec, data) if codec else data
    assert await world.push(instance_id, found.subscription_id, sent, codec) is ErrorCode.NONE
    world.clock.advance(1)
    assert await world.push(instance_id, found.subscription_id, sent, codec) is ErrorCode.NONE
    scraped = world.scrape()
    common = {
        "client_id": 'a "client"',
        "client_instance_id": next(iter(world.telemetry.instances()))[0],
        "software": "x 1.0",
    }
    prefix = "org_apache_kafka_producer_"
    assert scraped(f"{prefix}queue_size", topic="t", **common) == 2.5
    assert scraped(f"{prefix}record_send_total", **common) == 10
    assert scraped("client_other_total", **common) == 6
    assert scraped("kafka_server_client_metrics_instance_count") == 1
    assert scraped("kafka_server_client_metrics_plugin_export_total") == 2
    assert scraped("ottla_client_metrics_series") == 3


async def test_pushes_that_are_refused(world: World) -> None:
    world.put(metrics="*", interval_ms="1000")
    instance_id, found = world.ask()
    good = found.subscription_id
    for wrong_id in (ZERO_UUID, bytes(15) + b"\x01"):
        assert await world.push(wrong_id, 0) is ErrorCode.INVALID_REQUEST
    assert await world.push(instance_id, good + 1) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    # Which lets the client ask at once.
    world.ask(instance_id)
    world.clock.advance(1)
    assert await world.push(instance_id, good, b"x", 9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    world.clock.advance(1)
    assert await world.push(instance_id, good, bytes(1001)) is ErrorCode.TELEMETRY_TOO_LARGE
    world.clock.advance(1)
    assert await world.push(instance_id, good, compress(1, bytes(2000)), 1) is ErrorCode.TELEMETRY_TOO_LARGE
    world.clock.advance(1)
    assert await world.push(instance_id, good, b"\xff") is ErrorCode.INVALID_RECORD
    world.clock.advance(1)
    assert await world.push(instance_id, good, b"broken", 4) is ErrorCode.INVALID_RECORD
    assert await world.push(instance_id, good) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await world.push(instance_id, good, terminating=True) is ErrorCode.NONE
    world.clock.advance(1)
    assert await world.push(instance_id, good) is ErrorCode.INVALID_REQUEST
    assert world.telemetry.unknown_subscriptions == 1
    assert world.telemetry.refused == 8


async def test_clients_that_are_gone_are_forgotten(world: World) -> None:
    world.put(metrics="*", interval_ms="1000")
    instance_id, found = world.ask()
    data = metrics_data([gauge("a", number(1))])
    assert await world.push(instance_id, found.subscription_id, data) is ErrorCode.NONE
    world.clock.advance(30)
    assert (len(list(world.telemetry.instances())), world.telemetry.series) == (1, 1)
    world.clock.advance(60)
    assert (len(list(world.telemetry.instances())), world.telemetry.series) == (0, 0)


async def test_everything_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(most_series=5)
    world.put(metrics="*", interval_ms="1000")
    data = metrics_data([gauge(f"m{each}", number(1)) for each in range(4)])
    for _ in range(2):
        instance_id, found = world.ask()
        assert await world.push(instance_id, found.subscription_id, data) is ErrorCode.NONE
    assert (world.telemetry.series, world.telemetry.dropped_series) == (5, 3)
    assert len(world.scrape(2).samples) < len(world.scrape().samples)
    monkeypatch.setattr(client_telemetry, "MOST_CLIENTS", 3)
    for _ in range(5):
        world.ask()
    assert len(list(world.telemetry.instances())) == 3
    assert world.telemetry.series == 0
    long = series_of(Point("9" * 500, 1.0, True, False, tuple((f"k{n}", "v" * 500) for n in range(40))))
    assert len(long.name) < 220
    assert len(long.labels) <= 12
    assert all(len(value) <= 200 for _, value in long.labels)


def test_names_and_labels_are_those_of_prometheus() -> None:
    found = series_of(
        Point("1.a-b/c", 1.0, True, False, (("1a", "x"), ("__b", "y"), ("a.b", "1"), ("a-b", "2")))
    )
    assert found.name == "_1_a_b_c_total"
    assert dict(found.labels) == {"a1a": "x", "a__b": "y", "a_b": "2"}


def test_a_subscription_that_cannot_be_read_is_left_out(world: World) -> None:
    world.put("broken", metrics="*", match="client_id=(")
    _, found = world.ask()
    assert found.metrics == ()


def test_a_connection_that_closes_is_forgotten(world: World) -> None:
    connection = world.connection()
    assert world.telemetry._software
    for close in connection.on_close.values():
        close()
    assert not world.telemetry._software


async def test_pushes_are_decoded_one_at_a_time_and_a_bounded_number_waits() -> None:
    world = World()
    begun: list[asyncio.Future[Any]] = []

    class Held(Threads):
        def run(self, function: Callable[..., Any], *arguments: object) -> asyncio.Future[Any]:
            begun.append(asyncio.get_running_loop().create_future())
            return begun[-1]

    world.telemetry._background = Held()  # type: ignore[assignment]
    pushes = []
    for _ in range(70):
        instance_id, instance = world.ask()
        pushes.append(
            asyncio.ensure_future(world.push(instance_id, instance.subscription_id, metrics_data([])))
        )
    await asyncio.sleep(0)
    assert len(begun) == 1
    for _ in range(64):
        begun[-1].set_result(client_telemetry.Decoded([], 0))
        for _ in range(5):
            await asyncio.sleep(0)
    codes = [await each for each in pushes]
    assert codes == [ErrorCode.NONE] * 64 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 6
    assert len(begun) == 64
