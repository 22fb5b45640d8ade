"""Bytes that are no requests: the connection that sent them is closed, and no other client notices."""

from __future__ import annotations

import struct

import pytest
from tests.badinput.requests import produce_request, records
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire, frame, request_bytes

from ottla_protocol.header import RequestHeader, encode_request_header
from ottla_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla_protocol.messages.fetch import FetchRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


def header(api_key: int, version: int, correlation: int = 7) -> bytes:
    return encode_request_header(RequestHeader(api_key, version, correlation, "bad"))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200, id="tls-hello"),
        pytest.param(struct.pack(">i", -1), id="size-minus-one"),
        pytest.param(struct.pack(">i", -(2**31)), id="size-lowest"),
        pytest.param(struct.pack(">i", 2**31 - 1) + b"x" * 1000, id="size-highest"),
        pytest.param(struct.pack(">i", 104857601), id="size-past-the-limit"),
        pytest.param(struct.pack(">i", 0), id="empty-frame"),
        pytest.param(frame(b"\x00"), id="one-byte"),
        pytest.param(frame(b"\x00\x03\x00\x01\x00\x00\x00"), id="header-cut-short"),
        pytest.param(frame(struct.pack(">hhih", 3, 1, 1, 500) + b"abc"), id="client-id-past-the-end"),
        pytest.param(frame(struct.pack(">hhih", 3, 1, 1, -7)), id="client-id-of-negative-length"),
        pytest.param(frame(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe"), id="client-id-not-utf8"),
        pytest.param(frame(b"\xff" * 64), id="all-ones"),
        pytest.param(frame(b"\x00" * 4), id="all-zero"),
    ],
)
def test_what_is_no_request_closes_the_connection(data: bytes, wire: Wire) -> None:
    wire.send(data)
    assert wire.is_closed()


@pytest.mark.parametrize("api_key", [-1, 5, 77, 500, 32767, -32768])
def test_an_unknown_api_closes_the_connection(api_key: int, wire: Wire) -> None:
    wire.send(frame(header(api_key, 0) + b"\x00" * 20))
    assert wire.is_closed()


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(3, 99), (3, -1), (0, 12), (0, 99), (1, 18), (1, -1), (11, 10), (18, -1), (60, 50)],
)
def test_an_unknown_version_closes_the_connection(api_key: int, version: int, wire: Wire) -> None:
    wire.send(frame(header(api_key, version) + b"\x00" * 20))
    if api_key == 18:
        assert wire.receive()[:6] == struct.pack(">ih", 7, 35)
    else:
        assert wire.is_closed()


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int, wire: Wire) -> None:
    wire.send(frame(header(18, version, 4711) + b"\x06client\x041.0\x00"))
    data = wire.receive()
    assert struct.unpack_from(">i", data) == (4711,)
    answer = ApiVersionsResponse.decode(data, 0, 4)
    assert answer.error_code == 35
    (own,) = answer.api_keys
    assert (own.api_key, own.min_version) == (18, 0)
    assert own.max_version >= 3
    again = wire.call(
        ApiVersionsRequest(client_software_name="wire", client_software_version="1"), own.max_version
    )
    assert again.error_code == 0


def test_an_invalid_software_name_is_an_invalid_request(wire: Wire) -> None:
    bad = ApiVersionsRequest(client_software_name="-no-", client_software_version="!")
    assert wire.call(bad, 3).error_code == 42
    assert (
        wire.call(ApiVersionsRequest(client_software_name="ok", client_software_version="1"), 3).error_code
        == 0
    )


def lying_bodies() -> list[object]:
    huge, negative = struct.pack(">i", 2**31 - 1), struct.pack(">i", -5)
    varint = b"\xff\xff\xff\xff\x07"
    cases = []
    for name, count in (("huge", huge), ("negative", negative)):
        cases += [
            pytest.param(3, 1, count, id=f"metadata-topics-{name}"),
            pytest.param(1, 4, struct.pack(">iiiib", -1, 0, 1, 1, 0) + count, id=f"fetch-topics-{name}"),
            pytest.param(0, 3, struct.pack(">hhi", -1, 1, 1000) + count, id=f"produce-topics-{name}"),
            pytest.param(19, 2, count, id=f"create-topics-{name}"),
            pytest.param(2, 1, struct.pack(">i", -1) + count, id=f"list-offsets-{name}"),
            pytest.param(15, 0, count, id=f"describe-groups-{name}"),
        ]
    cases += [
        pytest.param(3, 9, varint, id="compact-array-huge"),
        pytest.param(3, 9, b"\xff" * 10, id="varint-too-long"),
        pytest.param(3, 9, b"\x02\xff\xff\xff\xff\x07abc", id="compact-string-huge"),
        pytest.param(3, 9, b"\x02", id="compact-array-cut-short"),
        pytest.param(3, 9, b"\x01\x01\x00\x00\x05\x00\x10abc", id="tagged-field-past-the-end"),
        pytest.param(3, 9, b"\x01\x01\x00\x00" + varint, id="tagged-fields-huge-count"),
        pytest.param(3, 1, struct.pack(">ih", 1, 20) + b"short", id="string-past-the-end"),
        pytest.param(3, 1, struct.pack(">ih", 1, -5), id="string-of-negative-length"),
        pytest.param(3, 1, struct.pack(">ih", 1, 2) + b"\xff\xff", id="string-not-utf8"),
        pytest.param(10, 0, struct.pack(">h", -1), id="null-where-none-may-be"),
        pytest.param(8, 2, b"", id="empty-body"),
    ]
    return cases


@pytest.mark.parametrize(("api_key", "version", "body"), lying_bodies())
def test_lying_lengths_close_the_connection(
    api_key: int, version: int, body: bytes, wire: Wire, is_kafka: bool
) -> None:
    if is_kafka and api_key == 3 and body == struct.pack(">ih", 1, 2) + b"\xff\xff":
        pytest.skip("Java replaces what is not UTF-8")
    if is_kafka and api_key == 3 and body == struct.pack(">i", -5):
        pytest.skip("Kafka takes any negative length for null")
    wire.send(frame(header(api_key, version) + body))
    assert wire.is_closed()


def test_every_prefix_of_a_request_closes_the_connection_or_is_waited_for(broker: BrokerProcess) -> None:
    whole = request_bytes(produce_request("no-such-topic-here", bytes(records(b"v")), acks=1), 9)
    for size in range(4, len(whole) - 1, 3):
        with Wire(broker.port) as wire:
            wire.send(struct.pack(">i", size - 4) + whole[4:size])
            try:
                wire.receive()  # a request that happens to be whole before its records end is answered
            except ConnectionError:
                continue


def test_a_request_in_single_bytes_is_answered(wire: Wire) -> None:
    for byte in request_bytes(MetadataRequest(topics=[]), 9, 3):
        wire.send(bytes([byte]))
    assert wire.receive()[:4] == struct.pack(">i", 3)


def test_clients_that_go_away_in_the_middle(broker: BrokerProcess) -> None:
    whole = request_bytes(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[]), 12)
    for data in (whole[:2], whole[:20], whole, struct.pack(">i", 50_000_000) + b"x" * 100_000):
        with Wire(broker.port) as wire:
            wire.send(data)


def test_good_requests_before_a_bad_one_are_answered(wire: Wire) -> None:
    good = [request_bytes(MetadataRequest(topics=[]), 9, number) for number in range(5)]
    wire.send(b"".join(good) + frame(header(3, 99)))
    got = []
    try:
        while True:
            got.append(struct.unpack_from(">i", wire.receive())[0])
    except ConnectionError:
        pass
    assert got == list(range(len(got)))


def test_trailing_bytes_are_let_pass(wire: Wire) -> None:
    wire.send(frame(header(3, 1, 9) + struct.pack(">i", 0) + b"something else"))
    assert wire.receive()[:4] == struct.pack(">i", 9)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "../etc", "x" * 250, "ü", "a\0b"])
def test_impossible_topic_names(name: str, wire: Wire) -> None:
    answer = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 8)
    assert answer.topics[0].error_code == 17
