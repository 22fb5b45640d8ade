"""The messages of the 2012 coordinator: every one survives its own bytes, and no bytes do harm."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_protocol import push
from ottla_protocol.errors import LocalProtocolError, ProtocolError
from ottla_protocol.push import (
    Broker,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    FrameReader,
    Ownership,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_int32 = st.integers(-(2**31), 2**31 - 1)
_code = st.integers(-(2**15), 2**15 - 1)
_offset = st.builds(PartitionOffset, _text, st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
_offsets = st.lists(_offset, max_size=4).map(tuple)
_brokers = st.lists(st.builds(Broker, _int32, _text, _int32), max_size=3).map(tuple)
_from_consumer = st.one_of(
    st.just(ClusterMetadataRequest()),
    st.builds(RegisterConsumerRequest, _text, _text, _text, st.booleans(), _text, _int32),
    st.builds(PingResponse, _code, _text, st.none() | _offsets),
    st.builds(StopFetcherResponse, _code, _text, st.none() | _offsets),
    st.builds(StartFetcherResponse, _code, _text),
)
_pushes = st.one_of(
    st.builds(PingRequest, _text, _int32),
    st.builds(StopFetcherRequest, _text),
    st.builds(
        StartFetcherRequest,
        _text,
        st.lists(st.builds(Ownership, _text, _offsets), max_size=3).map(tuple),
        _brokers,
    ),
)


def body(frame: bytes) -> bytes:
    (size,) = struct.unpack_from(">i", frame)
    assert size == len(frame) - 4
    return frame[4:]


@given(_from_consumer)
def test_what_consumers_send_is_read_again(message: push.FromConsumer) -> None:
    assert push.decode_from_consumer(body(message.encode())) == message


@given(_pushes)
def test_what_coordinators_push_is_read_again(message: push.FromCoordinator) -> None:
    assert push.decode_push(body(message.encode())) == message


@given(_code, _int32, _brokers)
def test_cluster_metadata_is_read_again(code: int, coordinator: int, brokers: tuple[Broker, ...]) -> None:
    message = ClusterMetadataResponse(code, coordinator, brokers)
    assert ClusterMetadataResponse.decode(body(message.encode())) == message


@given(_code, _text)
def test_answers_to_registrations_are_read_again(code: int, text: str) -> None:
    message = RegisterConsumerResponse(code, text if code else "")
    assert RegisterConsumerResponse.decode(body(message.encode())) == message


@given(st.binary(max_size=60), st.sampled_from([None, *push.RequestType]))
def test_any_bytes_are_a_message_or_an_error(data: bytes, kind: push.RequestType | None) -> None:
    if kind is not None:
        data = struct.pack(">h", kind) + data
    for decode in (
        push.decode_from_consumer,
        push.decode_push,
        ClusterMetadataResponse.decode,
        RegisterConsumerResponse.decode,
    ):
        with suppress(ProtocolError):
            decode(data)


@given(st.lists(_from_consumer, min_size=1, max_size=4), st.data())
def test_frames_come_out_whole_however_they_are_cut(
    messages: list[push.FromConsumer], data: st.DataObject
) -> None:
    wire = b"".join(message.encode() for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=5)))
    reader = FrameReader(push.MAX_REGISTRATION)
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        found += reader.feed(wire[start:end])
    assert [push.decode_from_consumer(frame) for frame in found] == messages
    assert reader.pending == 0


@pytest.mark.parametrize("size", [-1, 0, 1, push.MAX_REGISTRATION + 1, 2**31 - 1])
def test_a_size_that_lies_is_refused_before_its_bytes_come(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"size is {size} bytes"):
        FrameReader(push.MAX_REGISTRATION).feed(struct.pack(">i", size))


def test_a_partition_is_digits() -> None:
    frame = bytearray(PingResponse(0, "c", (PartitionOffset("t", 7, 1),)).encode())
    frame[frame.index(b"7")] = ord("x")
    with pytest.raises(ProtocolError, match="digits are needed"):
        push.decode_from_consumer(body(bytes(frame)))


def test_what_has_no_place_in_a_field_is_refused() -> None:
    for message in (
        PingRequest("c" * 40_000),
        PingRequest("c", 2**31),
        PingResponse(0, "c", (PartitionOffset("t", 0, 0),) * 32_768),
    ):
        with pytest.raises(LocalProtocolError):
            message.encode()


def test_the_bytes_are_those_of_the_document() -> None:
    registration = RegisterConsumerRequest("g", "c", '{"t":1}', True, "smallest", 6000)
    assert registration.encode().hex(" ") == (
        "00 00 00 20 00 06 00 01 67 00 01 63 00 07 7b 22 74 22 3a 31 7d 01 00 08 73 6d 61 6c 6c 65 73 74 00 00 17 70"
    )
    assert PingResponse(0, "c").encode().hex(" ") == "00 00 00 07 00 07 00 00 00 01 63"
