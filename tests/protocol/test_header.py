"""Request and response headers: every version, beside aiokafka's, and whatever is wrong with them."""

from __future__ import annotations

import pytest
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, ResponseHeader_v0, ResponseHeader_v1
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.samples import message_classes

from ottla_protocol.errors import LocalProtocolError, ProtocolError
from ottla_protocol.header import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    parse_request_header,
    parse_response_header,
    request_is_flexible,
    response_header_is_flexible,
)

PRODUCE, METADATA, CONTROLLED_SHUTDOWN, SASL_HANDSHAKE, API_VERSIONS = 0, 3, 7, 17, 18


def header_of(key: int, version: int, correlation_id: int = 7, client_id: str | None = "me") -> RequestHeader:
    return RequestHeader(key, version, correlation_id, client_id)


def fields(header: RequestHeader) -> tuple[int, int, int, str | None]:
    return header.api_key, header.api_version, header.correlation_id, header.client_id


@pytest.mark.parametrize("client_id", ["me", "", "ünïcode 😀", None, "x" * 32767])
def test_version_1_is_aiokafkas(client_id: str | None) -> None:
    header = header_of(METADATA, 8, 123456, client_id)
    encoded = encode_request_header(header)
    assert encoded == RequestHeader_v1.SCHEMA.encode((METADATA, 8, 123456, client_id))
    parsed, position = parse_request_header(encoded + b"body")
    assert fields(parsed) == fields(header)
    assert position == len(encoded)


@pytest.mark.parametrize("client_id", ["me", "", None])
def test_version_2_is_aiokafkas(client_id: str | None) -> None:
    header = header_of(METADATA, 9, -5, client_id)
    encoded = encode_request_header(header)
    assert encoded == RequestHeader_v2.SCHEMA.encode((METADATA, 9, -5, client_id, {}))
    parsed, position = parse_request_header(memoryview(bytearray(encoded + b"body")))
    assert fields(parsed) == fields(header)
    assert position == len(encoded)


def test_only_the_oldest_controlled_shutdown_has_version_0() -> None:
    header = header_of(CONTROLLED_SHUTDOWN, 0, 9, None)
    encoded = encode_request_header(header)
    assert encoded == bytes.fromhex("0007000000000009")
    for body in (b"", b"\x00\x00\x00\x01"):
        parsed, position = parse_request_header(encoded + body)
        assert fields(parsed) == fields(header)
        assert position == 8
    assert len(encode_request_header(header_of(CONTROLLED_SHUTDOWN, 1))) == 12


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode_request_header(header_of(METADATA, 9))
    tagged = plain[:-1] + b"\x02" + b"\x05\x03abc" + b"\x80\x01\x00"
    parsed, position = parse_request_header(tagged + b"body")
    assert parsed.client_id == "me"
    assert tagged[position:] == b""
    answer = b"\x00\x00\x00\x07\x01\x00\x02hi"
    assert parse_response_header(answer + b"body", METADATA, 9) == (7, len(answer))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        bytes.fromhex("0003000100000001"),
        bytes.fromhex("000300010000000100"),
        bytes.fromhex("0003000100000001fffe"),
        bytes.fromhex("000300010000000100056162"),
        bytes.fromhex("00030001000000010002c328"),
        bytes.fromhex("00030009000000010000"),
        bytes.fromhex("0003000900000001000001"),
        bytes.fromhex("000300090000000100000100"),
        bytes.fromhex("00030009000000010000010005"),
        bytes.fromhex("00030009000000010000ffffffffff"),
        bytes.fromhex("00030009000000010000ffffffffff7f"),
        bytes.fromhex("000700000000"),
    ],
)
def test_broken_headers_are_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"request header|varint"):
        parse_request_header(frame)


def test_unknown_apis_and_versions_still_have_a_header() -> None:
    frame = bytes.fromhex("7fff7fff000000010002") + b"me"
    assert fields(parse_request_header(frame)[0]) == (0x7FFF, 0x7FFF, 1, "me")
    frame = bytes.fromhex("ffffffff000000010002") + b"me"
    assert fields(parse_request_header(frame)[0]) == (-1, -1, 1, "me")
    # An ApiVersions of the future comes with the newest header, and has to be answered.
    frame = bytes.fromhex("00120063000000010002") + b"me\x00"
    assert fields(parse_request_header(frame)[0]) == (API_VERSIONS, 99, 1, "me")


def test_response_headers() -> None:
    assert encode_response_header(METADATA, 8, 5) == ResponseHeader_v0.SCHEMA.encode((5,))
    assert encode_response_header(METADATA, 9, 5) == ResponseHeader_v1.SCHEMA.encode((5, {}))
    assert encode_response_header(API_VERSIONS, 3, 5) == ResponseHeader_v0.SCHEMA.encode((5,))
    assert parse_response_header(b"\x00\x00\x00\x05\x00", METADATA, 9) == (5, 5)
    assert parse_response_header(b"\x00\x00\x00\x05\x00", API_VERSIONS, 4) == (5, 4)
    for broken in (b"", b"\x00\x00\x00", b"\x00\x00\x00\x05"):
        with pytest.raises(ProtocolError, match="response header"):
            parse_response_header(broken, METADATA, 9)


def test_flexible_versions_agree_with_the_messages() -> None:
    compared = 0
    for cls in message_classes():
        if cls.API_KEY is None:
            continue
        for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
            flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
            assert request_is_flexible(cls.API_KEY, version) == flexible
            assert response_header_is_flexible(cls.API_KEY, version) == (
                flexible and cls.API_KEY != API_VERSIONS
            )
            compared += 1
    assert compared > 300
    assert not request_is_flexible(SASL_HANDSHAKE, 1)
    assert not request_is_flexible(-1, 5)
    assert not request_is_flexible(999, 5)


@pytest.mark.parametrize(
    "header",
    [
        header_of(1 << 15, 0),
        header_of(PRODUCE, -(1 << 15) - 1),
        header_of(PRODUCE, 0, 1 << 31),
        header_of(PRODUCE, 0, 0, "x" * 32768),
        header_of(PRODUCE, 0, 0, "\ud800"),
    ],
)
def test_invalid_headers_are_refused(header: RequestHeader) -> None:
    with pytest.raises(LocalProtocolError):
        encode_request_header(header)


@given(st.binary(max_size=40))
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    try:
        _, position = parse_request_header(data)
    except ProtocolError:
        return
    assert position <= len(data)


@given(
    st.integers(0, 75),
    st.integers(0, 20),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=40),
)
def test_round_trip(key: int, version: int, correlation_id: int, client_id: str | None) -> None:
    if (key, version) == (CONTROLLED_SHUTDOWN, 0):
        client_id = None
    header = header_of(key, version, correlation_id, client_id)
    encoded = encode_request_header(header)
    parsed, position = parse_request_header(encoded + b"\x01")
    assert fields(parsed) == fields(header)
    assert position == len(encoded)
    for cut in range(len(encoded)):
        with pytest.raises(ProtocolError):
            parse_request_header(encoded[:cut])
