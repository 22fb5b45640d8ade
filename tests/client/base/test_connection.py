"""One connection: requests, responses, and everything else that may arrive."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.client.base.conftest import sockets, until
from tests.client.base.fake import FakeBroker, Script, frame

from ottla_client.connection import SOFTWARE, Connection
from ottla_client.errors import (
    ClientError,
    ConnectError,
    ConnectionLostError,
    NotABrokerError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.exchange import RawAnswer
from ottla_protocol.messages.api_versions import ApiVersionsResponse
from ottla_protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla_protocol.messages.metadata import MetadataRequest
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


@pytest.fixture
async def connect(fake: FakeBroker) -> AsyncIterator[Callable[..., Any]]:
    """Opens connections to the fake broker, which are closed at the end."""
    made: list[Connection] = []

    async def make(**options: Any) -> Connection:
        options = {"client_id": "me", "timeout": 5.0, **options}
        made.append(await Connection.open("127.0.0.1", fake.port, **options))
        return made[-1]

    yield make
    for connection in made:
        connection.close()
        await connection.wait_closed()


async def test_negotiated_versions(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.versions = {
        **fake.versions,
        ApiKey.METADATA: (1, 7),
        ApiKey.PRODUCE: (3, 99),
        ApiKey.LIST_GROUPS: (90, 91),
    }
    connection = await connect()
    assert connection.version_of(ApiKey.METADATA) == 7
    assert connection.version_of(ApiKey.PRODUCE) == 12
    with pytest.raises(UnsupportedApiError, match=r"ListGroups.*has versions 90 to 91"):
        connection.version_of(ApiKey.LIST_GROUPS)
    with pytest.raises(UnsupportedApiError, match=r"DeleteRecords.*does not have it"):
        connection.version_of(ApiKey.DELETE_RECORDS)
    with pytest.raises(UnsupportedApiError, match=r"Metadata version 9: .* supports only 1 to 7"):
        connection.submit(MetadataRequest(), timeout=60, version=9)
    header, request = fake.headers[0], fake.requests[0]
    assert (header.client_id, header.api_version) == ("me", 3)
    assert (request.client_software_name, request.client_software_version) == SOFTWARE


@pytest.mark.parametrize("newest", [0, 1, 2])
async def test_older_brokers_refuse_the_first_question(
    fake: FakeBroker, connect: Callable[..., Any], newest: int
) -> None:
    """Error 35 in version 0 comes back, with the versions (2.4 and later) that it has; then those are used."""
    fake.versions = {**fake.versions, ApiKey.API_VERSIONS: (0, newest)}
    connection = await connect()
    assert [header.api_version for header in fake.headers] == [3, newest]
    assert connection.version_of(ApiKey.METADATA) == 12


async def test_brokers_before_2_4_refuse_without_versions(
    fake: FakeBroker, connect: Callable[..., Any]
) -> None:
    def answer(header: Any, request: Any) -> Any:
        if header.api_version:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION).encode(0)
        return fake._versions()

    fake.answers[ApiKey.API_VERSIONS] = answer
    connection = await connect()
    assert [header.api_version for header in fake.headers] == [3, 0]
    assert connection.version_of(ApiKey.METADATA) == 12


async def test_responses_are_matched_in_order(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse(
        throttle_time_ms=len(request.states_filter)
    )
    connection = await connect()
    futures = [
        connection.submit(ListGroupsRequest(states_filter=["s"] * number), timeout=60)
        for number in range(200)
    ]
    assert connection.in_flight == 200
    futures[7].cancel()
    kept = [future for future in futures if not future.cancelled()]
    answers = await asyncio.gather(*kept)
    assert [answer.throttle_time_ms for answer in answers] == [n for n in range(200) if n != 7]
    assert connection.in_flight == 0


def _fetched(*sizes: int) -> FetchResponse:
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic_id=b"t" * 16,
                partitions=[
                    PartitionData(records=bytes([number]) * size) for number, size in enumerate(sizes)
                ],
            )
        ]
    )


@pytest.mark.parametrize("size", [0, 100, 4_000, 65_000, 65_536, 70_000, 3_000_000])
async def test_views_of_an_answer_outlive_those_that_follow(
    fake: FakeBroker, connect: Callable[..., Any], size: int
) -> None:
    fills = iter(range(1, 100))
    fake.answers[ApiKey.FETCH] = lambda header, request: _fetched(next(fills) * 0 + size, 7, size)
    connection = await connect()
    raw = [connection.submit(FetchRequest(), timeout=60, raw=True) for _ in range(3)]
    decoded = [connection.submit(FetchRequest(), timeout=60) for _ in range(3)]
    answers = await asyncio.gather(*raw)
    responses = [FetchResponse.decode(answer.body, answer.version) for answer in answers]
    assert all(isinstance(answer, RawAnswer) for answer in answers)
    for response in responses + await asyncio.gather(*decoded):
        parts = response.responses[0].partitions
        assert [bytes(part.records) for part in parts] == [bytes(size), b"\x01" * 7, b"\x02" * size]


async def test_acks_0_is_done_when_written(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.PRODUCE] = lambda header, request: None
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse()
    connection = await connect()
    records = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"x" * 100_000)])]
    future = connection.submit(ProduceRequest(acks=0, topic_data=records), timeout=60)
    assert future.done()
    assert future.result() is None
    await connection.submit(ListGroupsRequest(), timeout=60)
    assert bytes(fake.requests[-2].topic_data[0].partition_data[0].records) == b"x" * 100_000


async def test_closing_sends_what_was_submitted(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.PRODUCE] = lambda header, request: None
    connection = await connect()
    records = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"x" * 8_000_000)])]
    connection.submit(ProduceRequest(acks=0, topic_data=records), timeout=60)
    connection.close()
    await connection.wait_closed()
    await until(lambda: bool(fake.asked[ApiKey.PRODUCE]))


async def test_drain_waits_for_a_slow_broker(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        data = await reader.readexactly(size)
        writer.write(frame(data[4:8] + fake._versions().encode(3)))
        await go_on.wait()
        while await reader.read(1_000_000):
            pass

    fake.script = script
    connection = await connect()
    await connection.drain()
    records = [TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"x" * 30_000_000)])]
    connection.submit(ProduceRequest(acks=0, topic_data=records), timeout=60)
    drained = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0.05)
    assert not drained.done()
    go_on.set()
    await drained


async def test_a_request_without_an_answer_ends_the_connection(
    fake: FakeBroker, connect: Callable[..., Any]
) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: None
    fake.answers[ApiKey.METADATA] = lambda header, request: None
    connection = await connect()
    first = connection.submit(ListGroupsRequest(), timeout=0.05)
    second = connection.submit(MetadataRequest(), timeout=60)
    with pytest.raises(RequestTimeoutError, match=r"ListGroups within 0.05 s"):
        await first
    with pytest.raises(ConnectionLostError, match="ListGroups was not answered"):
        await second
    assert connection.closed
    with pytest.raises(ConnectionLostError):
        connection.submit(MetadataRequest(), timeout=60)
    await connection.wait_closed()


async def test_a_silent_broker_is_warned_of_once(
    fake: FakeBroker,
    connect: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("ottla_client.connection.Connection.quiet_seconds", 0.1)
    fake.answers[ApiKey.LIST_GROUPS] = fake.answers[ApiKey.FETCH] = lambda header, request: None
    connection = await connect()
    connection.submit(FetchRequest(max_wait_ms=60_000), timeout=90)  # the broker may wait for records
    await asyncio.sleep(0.3)
    assert not caplog.messages
    connection.submit(ListGroupsRequest(), timeout=60)
    connection.submit(ListGroupsRequest(), timeout=50)
    await until(lambda: bool(caplog.messages))
    await asyncio.sleep(0.3)
    assert caplog.messages == [
        f"127.0.0.1:{fake.port} has not answered ListGroups for 0 s; waiting up to 60 s"
    ]


async def test_a_timeout_holds_without_a_waiting_caller(
    fake: FakeBroker, connect: Callable[..., Any]
) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: None
    connection = await connect()
    connection.submit(ListGroupsRequest(), timeout=0.05).cancel()
    await connection.wait_closed()
    assert "ListGroups was not answered" in str(connection.error)


async def test_the_broker_dies(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: None
    connection = await connect()
    reported: list[Connection] = []
    connection.on_close = reported.append
    futures = [connection.submit(ListGroupsRequest(), timeout=60) for _ in range(3)]
    await until(lambda: fake.asked[ApiKey.LIST_GROUPS] == 3)
    fake.cut()
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert all(type(error) is ConnectionLostError for error in errors)
    assert len({id(error) for error in errors}) == 3
    await connection.wait_closed()
    assert reported == [connection]
    with pytest.raises(ConnectionLostError):
        await connection.drain()


async def test_an_idle_connection_closes(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse()
    connection = await connect(max_idle=0.6)
    for _ in range(5):
        await asyncio.sleep(0.15)
        await connection.submit(ListGroupsRequest(), timeout=60)
    await connection.wait_closed()
    assert connection.closed
    assert connection.error is None


def _says(*pieces: bytes, linger: bool = False) -> Script:
    """Waits for a request, sends the given bytes, and hangs up unless ``lingers``."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if linger:
            await asyncio.Event().wait()

    return script


@pytest.mark.parametrize(
    ("script", "kind", "text"),
    [
        (_says(b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n"), NotABrokerError, "web server"),
        (_says(b"\x15\x03\x03\x00\x02\x02\x46", linger=True), NotABrokerError, 'security_protocol="SSL"'),
        (_says(b"220 mail.example ESMTP\r\n", linger=True), NotABrokerError, "220 mail.example ESMTP"),
        (_says(b"\xff\xff\xff\xffabc", linger=True), NotABrokerError, "-1 bytes"),
        (_says(b"\x7f\xff\xff\xff" + bytes(20), linger=True), NotABrokerError, "2147483647 bytes"),
        (_says(b"\x00\x00\x00\x03abc", linger=True), NotABrokerError, "3 bytes"),
        (_says(frame(b"\x00\x00\x00\x63garbage!"), linger=True), NotABrokerError, "correlation id 99"),
        (
            _says(frame(b"\x00\x00\x00\x00\x00\x00\x07\xff\xff\xff\xff\xff"), linger=True),
            NotABrokerError,
            "ApiVersions",
        ),
        (_says(frame(bytes(5)), linger=True), NotABrokerError, "ApiVersions"),
        (_says(), ConnectError, "TLS listener"),
        (_says(b"\x00\x00"), ConnectError, "TLS listener"),
        (_says(linger=True), ConnectError, "no answer to the first request"),
    ],
)
async def test_a_server_that_is_not_a_broker(
    fake: FakeBroker, script: Script, kind: type[ClientError], text: str
) -> None:
    fake.script = script
    before = sockets()
    with pytest.raises(kind) as caught:
        await Connection.open("127.0.0.1", fake.port, client_id="me", timeout=0.3)
    assert text in str(caught.value)
    assert f"127.0.0.1:{fake.port}" in str(caught.value)
    fake.cut()
    await until(lambda: sockets() <= before)


async def test_an_answer_larger_than_the_bound(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.FETCH] = lambda header, request: _fetched(200_000)
    connection = await connect(max_response_bytes=100_000)
    with pytest.raises(
        NotABrokerError, match=r"a response of 2000\d\d bytes; the largest accepted is 100000"
    ):
        await connection.submit(FetchRequest(), timeout=60)
    assert connection.closed


async def test_an_answer_that_cannot_be_read(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\x7f"
    connection = await connect()
    first = connection.submit(ListGroupsRequest(), timeout=60)
    second = connection.submit(ListGroupsRequest(), timeout=60)
    with pytest.raises(NotABrokerError, match="ListGroups version 5 that can't be read"):
        await first
    with pytest.raises(NotABrokerError):
        await second


async def test_an_unrequested_response(fake: FakeBroker, connect: Callable[..., Any]) -> None:
    fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse().encode(5) + frame(b"more")
    connection = await connect()
    # Bytes after a message are let be; a second frame is not.
    await connection.submit(ListGroupsRequest(), timeout=60)
    for writer in fake.writers:
        writer.write(frame(b"\x00\x00\x00\x09more"))
    await connection.wait_closed()
    assert "where none was expected" in str(connection.error)


async def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}: connection refused"):
        await Connection.open("127.0.0.1", port, client_id="me", timeout=60)


async def test_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(ConnectError, match=r"kafka.example:9092: .*Name or service not known"):
        await Connection.open("kafka.example", 9092, client_id="me", timeout=60)


def _resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    async def found(host: str, port: int, **_: Any) -> Any:
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in addresses
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)


async def test_each_address_of_a_name_gets_its_turn(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first refuses, the second isn't a broker's, the third doesn't answer."""
    web, mute = FakeBroker("127.0.0.3"), FakeBroker("127.0.0.4")
    web.script, mute.script = _says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), _says(linger=True)
    web.port = mute.port = fake.port
    async with web, mute:
        _resolve(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1")
        before = sockets()
        connection = await Connection.open("broker.example", fake.port, client_id="me", timeout=60)
        assert connection.version_of(ApiKey.METADATA) == 12
        assert (web.connections, mute.connections) == (1, 1)
        connection.close()
        await connection.wait_closed()
        for each in (fake, web, mute):
            each.cut()
        await until(lambda: sockets() <= before)


async def test_all_addresses_of_a_name_fail(monkeypatch: pytest.MonkeyPatch, fake: FakeBroker) -> None:
    _resolve(monkeypatch, "127.0.0.2", "127.0.0.3")
    with pytest.raises(ConnectError, match=r"refused at 127\.0\.0\.2; .*refused at 127\.0\.0\.3"):
        await Connection.open("broker.example", fake.port, client_id="me", timeout=60)


async def test_ipv6() -> None:
    try:
        broker = await FakeBroker("::1").start()
    except OSError:
        pytest.skip("this machine has no IPv6")
    connection = await Connection.open("::1", broker.port, client_id="me", timeout=60)
    connection.close()
    await connection.wait_closed()
    await broker.stop()


async def test_tls_is_spoken_to_a_plaintext_listener(broker: Any) -> None:
    with pytest.raises(ConnectError, match="PLAINTEXT") as caught:
        await Connection.open(
            "127.0.0.1", broker.port, client_id="me", timeout=5, ssl_context=ssl.create_default_context()
        )
    assert "ConnectionResetError" not in str(caught.value)


async def test_a_real_broker(broker: Any) -> None:
    connection = await Connection.open("127.0.0.1", broker.port, client_id="me", timeout=60)
    answer = await connection.submit(MetadataRequest(), timeout=60)
    assert [node.port for node in answer.brokers] == [broker.port]
    oldest = await connection.submit(MetadataRequest(), timeout=5, version=1)
    assert [node.port for node in oldest.brokers] == [broker.port]
    connection.close()
    await connection.wait_closed()
