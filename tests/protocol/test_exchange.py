"""The client side of a connection, fed byte by byte."""

from __future__ import annotations

import random

import pytest

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import KafkaError, ProtocolError
from ottla_protocol.exchange import SCRATCH_BYTES, Answer, Exchange, RawAnswer, UnsupportedVersionError
from ottla_protocol.header import encode_response_header, parse_request_header
from ottla_protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla_protocol.messages.fetch import FetchRequest, FetchResponse
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla_protocol.messages.produce import ProduceRequest


def exchange(limit: int = 1 << 24, **theirs: tuple[int, int]) -> Exchange[str]:
    made: Exchange[str] = Exchange("test", limit)
    table = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=ApiKey[name], min_version=low, max_version=high)
            for name, (low, high) in theirs.items()
        ]
    )
    assert made.learn(RawAnswer(memoryview(table.encode(3)), 3))
    return made


def feed(to: Exchange[str], data: bytes, pieces: int | None = None) -> list[Answer[str]]:
    answers: list[Answer[str]] = []
    while data:
        room = to.buffer()
        count = min(len(room), len(data), pieces or len(data))
        room[:count] = data[:count]
        data = data[count:]
        answers += to.received(count)
    return answers


def framed(key: int, version: int, correlation: int, body: bytes) -> bytes:
    frame = encode_response_header(key, version, correlation) + body
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("pieces", [1, 2, 7, 1000, None])
def test_responses_arrive_in_any_pieces(pieces: int | None) -> None:
    talk = exchange(METADATA=(0, 12), FETCH=(4, 17))
    rng = random.Random(5)
    sizes = [3, 70_000, 0, SCRATCH_BYTES, 5_000, 1]
    stream = b""
    for number, size in enumerate(sizes):
        parts, total, answered = talk.request(MetadataRequest(), f"r{number}")
        header, _ = parse_request_header(memoryview(b"".join(parts))[4:])
        assert (header.api_version, header.correlation_id, header.client_id) == (12, number, "test")
        assert answered
        assert total == len(b"".join(parts))
        response = MetadataResponse(
            cluster_id="c",
            topics=[MetadataResponseTopic(name=f"{rng.random()}", topic_id=bytes(16))] * (size // 40),
        )
        stream += framed(ApiKey.METADATA, 12, number, response.encode(12))
    answers = feed(talk, stream, pieces)
    assert [answer.token for answer in answers] == [f"r{i}" for i in range(len(sizes))]
    assert [len(answer.value.topics) for answer in answers] == [size // 40 for size in sizes]
    assert not talk.pending


def test_views_of_raw_responses_stay_valid() -> None:
    talk = exchange(FETCH=(4, 11))
    bodies = []
    stream = b""
    for number in range(4):
        talk.request(FetchRequest(), str(number), raw=True)
        bodies.append(FetchResponse(session_id=number).encode(11) + bytes([number]) * (50_000 * (number % 2)))
        stream += framed(ApiKey.FETCH, 11, number, bodies[-1])
    answers = feed(talk, stream, 4096)
    assert [bytes(answer.value.body) for answer in answers] == bodies
    assert {answer.value.version for answer in answers} == {11}


def test_the_version_is_the_highest_of_both() -> None:
    talk = exchange(METADATA=(3, 5), PRODUCE=(99, 120))
    assert talk.version_of(ApiKey.METADATA) == 5
    assert talk.common(ApiKey.METADATA) == (3, 5)
    with pytest.raises(UnsupportedVersionError, match=r"ListGroups: the broker does not have it"):
        talk.request(ListGroupsRequest(), "")
    with pytest.raises(UnsupportedVersionError, match=r"Produce: the broker has versions 99 to 120"):
        talk.version_of(ApiKey.PRODUCE)
    with pytest.raises(UnsupportedVersionError, match=r"Metadata version 6: .* supports only 3 to 5"):
        talk.request(MetadataRequest(), "", version=6)
    assert not talk.pending


def test_a_broker_without_the_handshake_version_names_its_own() -> None:
    talk: Exchange[str] = Exchange("test", 1000)
    talk.request(ApiVersionsRequest(), "", version=talk.handshake_version)
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)]
    )
    assert not talk.learn(RawAnswer(memoryview(response.encode(0)), 3))
    assert talk.handshake_version == 2
    silent = ApiVersionsResponse(error_code=35)
    assert not talk.learn(RawAnswer(memoryview(silent.encode(0)), 2))
    assert talk.handshake_version == 0
    with pytest.raises(KafkaError, match="ApiVersions is refused"):
        talk.learn(RawAnswer(memoryview(silent.encode(0)), 0))


def test_produce_without_acks_has_no_response() -> None:
    talk = exchange(PRODUCE=(0, 11))
    assert talk.request(ProduceRequest(acks=0), "")[2] is False
    assert talk.request(ProduceRequest(acks=1), "")[2] is True
    assert len(talk.pending) == 1


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "web server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS listener"),
        (b"220 mail.example ESMTP\r\n", "give the address of a Kafka broker"),
        (b"\x7f\xff\xff\xff\x00", "the largest accepted is"),
        (b"\xff\xff\xff\xff", "a response of -1 bytes"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x09", "correlation id 9 where 0 .Metadata. was expected"),
    ],
)
def test_bytes_that_are_not_a_response(sent: bytes, message: str) -> None:
    talk = exchange(METADATA=(0, 12))
    talk.request(MetadataRequest(), "")
    with pytest.raises(ProtocolError, match=message):
        feed(talk, sent)


def test_an_unrequested_response_is_refused() -> None:
    with pytest.raises(ProtocolError, match="where none was expected"):
        feed(exchange(), framed(ApiKey.METADATA, 12, 0, b""))


def test_an_undecodable_response_goes_to_its_request() -> None:
    talk = exchange(METADATA=(0, 12))
    talk.request(MetadataRequest(), "mine")
    (answer,) = feed(talk, framed(ApiKey.METADATA, 12, 0, b"\x00\x00"))
    assert answer.token == "mine"
    assert "can't be read" in str(answer.error)
