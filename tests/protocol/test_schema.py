"""The schema's own rules, on small messages and on Kafka's odd ones."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from ottla_protocol.errors import LocalProtocolError, ProtocolError
from ottla_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from ottla_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla_protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla_protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla_protocol.messages.offset_commit import OffsetCommitRequest
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.primitives import finish_uvarint, read_uvarint, uvarint
from ottla_protocol.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    UInt16,
    UInt32,
    Uuid,
    field,
    version_range,
)


class Leaf(Struct):
    number: Int32 = field(default=-1)
    label: String | None = field("2+", default=None)


class Everything(Message, versions="0-3", flexible="2+"):
    """Every type there is; version 1 adds, version 3 takes away."""

    small: Int8 = field(default=0)
    short: Int16 = field(default=0)
    unsigned_short: UInt16 = field(default=0)
    word: Int32 = field(default=0)
    unsigned: UInt32 = field(default=0)
    long: Int64 = field(default=0)
    double: Float64 = field(default=0.0)
    flag: Bool = field(default=False)
    uuid: Uuid = field(default=ZERO_UUID)
    text: String = field(default="")
    blob: Bytes = field(default=b"")
    maybe_blob: Bytes | None = field("1+", default=None)
    numbers: list[Int16] = field(default_factory=list)
    maybe_numbers: list[Int64] | None = field("1+", default=None)
    words: list[String] = field(default_factory=list)
    uuids: list[Uuid] = field(default_factory=list)
    blobs: list[Bytes] | None = field("0-2", default_factory=list, nullable="1+")
    leaf: Leaf = field(default_factory=Leaf)
    maybe_leaf: Leaf | None = field("1+", default=None)
    gone: Int32 = field("0-1", default=7)
    dropped: Int32 = field("0-1", default=7, ignorable=True)
    late: Int32 = field("3+", default=0, tag=3)
    tagged_leaf: Leaf = field("2+", default_factory=Leaf, tag=0)
    tagged_leaves: list[Leaf] = field("2+", default_factory=list, tag=1)


FULL: dict[str, Any] = {
    "small": -128,
    "short": -32768,
    "unsigned_short": 65535,
    "word": -(2**31),
    "unsigned": 2**32 - 1,
    "long": -(2**63),
    "double": 1.5,
    "flag": True,
    "uuid": bytes(range(16)),
    "text": "é" * 100,
    "blob": b"\x00\x01",
    "numbers": list(range(40)),
    "words": ["", "a", "b" * 200],
    "uuids": [ZERO_UUID, bytes(range(16))],
    "leaf": Leaf(number=5),
}


@pytest.mark.parametrize("version", range(4))
def test_every_type_in_every_version(version: int) -> None:
    message = Everything(**FULL)
    encoded = message.encode(version)
    assert Everything.decode(encoded, version) == message
    if version >= 1:
        message.maybe_blob, message.maybe_numbers, message.maybe_leaf = b"", [], Leaf()
        if version < 3:
            message.blobs = None
    if version >= 2:
        message.tagged_leaf, message.tagged_leaves = Leaf(number=1, label="x"), [Leaf(), Leaf(label="")]
    if version >= 3:
        message.late = -1
    assert Everything.decode(message.encode(version), version) == message


def test_bytes_of_a_fixed_and_of_a_flexible_version() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="ab")])
    assert request.encode(4).hex() == "00000001" + "00026162" + "01"
    assert request.encode(9).hex() == "02" + "036162" + "00" + "01" + "00" + "00" + "00"
    assert request.encode(12).hex() == "02" + "00" * 16 + "036162" + "00" + "01" + "00" + "00"


def test_null_and_empty_are_different() -> None:
    for version, null, empty in ((1, "ffffffff", "00000000"), (9, "00", "01")):
        for topics, expected in ((None, null), ([], empty)):
            encoded = MetadataRequest(topics=topics).encode(version)
            assert encoded.hex().startswith(expected)
            assert MetadataRequest.decode(encoded, version).topics == topics


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(LocalProtocolError, match=r"MetadataRequest v0: topics may not be None"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(LocalProtocolError, match=r"MetadataRequest v9: topics\[0\]\.name may not be None"):
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]).encode(9)
    with pytest.raises(ProtocolError, match="topics may not be null"):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    with pytest.raises(ProtocolError, match="name may not be null"):
        MetadataRequest.decode(b"\x02\x00\x00\x00\x00\x00\x00", 9)


def test_a_negative_length_other_than_null_is_refused() -> None:
    with pytest.raises(ProtocolError, match="topics is negative"):
        MetadataRequest.decode(b"\xff\xff\xff\xfe", 1)


def test_nullable_struct() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=3)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        assert DescribeTopicPartitionsRequest.decode(request.encode(0), 0).cursor == cursor
    assert DescribeTopicPartitionsRequest().encode(0).hex() == "01" + "000007d0" + "ff" + "00"


def test_tagged_fields_are_written_in_order_and_only_when_set() -> None:
    response = ApiVersionsResponse()
    assert response.encode(3).hex() == "0000" + "01" + "00000000" + "00"
    response.zk_migration_ready = True
    response.finalized_features_epoch = 5
    tags = "02" + "0108" + "0000000000000005" + "0301" + "01"
    assert response.encode(3).hex() == "0000" + "01" + "00000000" + tags
    response.supported_features = [SupportedFeatureKey(name="f", max_version=2)]
    assert ApiVersionsResponse.decode(response.encode(3), 3) == response


def test_unknown_tagged_fields_are_skipped() -> None:
    body = bytes.fromhex(
        "0000" + "01" + "00000000" + "03" + "0108" + "0000000000000005" + "0900" + "8001" + "03616263"
    )
    message, end = ApiVersionsResponse.decode_from(body + b"rest", 3)
    assert message == ApiVersionsResponse(finalized_features_epoch=5)
    assert end == len(body)


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ("01" + "0107" + "0000000000000005", "not as long as its tag says"),
        ("01" + "0109" + "000000000000000500", "not as long as its tag says"),
        ("01" + "097f", "past the end"),
        ("01" + "09ffffffff0f", "past the end"),
        ("05", "cut short"),
        ("ffffffff0f", "cut short"),
        ("ffffffffff", "more than five bytes"),
        ("ffffffff7f", "more than 32 bits"),
    ],
)
def test_broken_tagged_fields_are_refused(tags: str, reason: str) -> None:
    with pytest.raises(ProtocolError, match=f"ApiVersionsResponse v3: .*{reason}"):
        ApiVersionsResponse.decode(bytes.fromhex("0000" + "01" + "00000000" + tags), 3)


def test_a_field_that_the_version_lacks_is_an_error_unless_it_is_ignorable() -> None:
    assert Everything(dropped=1).encode(2) == Everything().encode(2)
    with pytest.raises(LocalProtocolError, match="Everything v2: gone is set"):
        Everything(gone=1).encode(2)
    for name, value in (("tagged_leaf", Leaf(number=0)), ("tagged_leaves", [Leaf()]), ("maybe_leaf", Leaf())):
        with pytest.raises(LocalProtocolError, match=f"Everything v0: {name} is set"):
            Everything(**{name: value}).encode(0)
    with pytest.raises(LocalProtocolError, match="blobs is set"):
        Everything(blobs=None).encode(3)
    assert Everything.decode(Everything(gone=9).encode(1), 1).gone == 9
    with pytest.raises(LocalProtocolError, match="group_instance_id is set"):
        OffsetCommitRequest(group_instance_id="me").encode(6)


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("small", 128, "small"),
        ("short", 32768, "short"),
        ("unsigned_short", -1, "unsigned_short"),
        ("word", 2**31, "word"),
        ("unsigned", -1, "unsigned"),
        ("long", 2**63, "long"),
        ("word", "1", "word"),
        ("word", None, "word"),
        ("double", "x", "double"),
        ("uuid", b"short", "uuid"),
        ("uuid", bytes(17), "uuid"),
        ("uuids", [b"short"], "uuids"),
        ("text", "x" * 32768, "text"),
        ("text", b"bytes", "text"),
        ("text", "\ud800", "text"),
        ("blob", "text", "blob"),
        ("blob", 5, "blob"),
        ("numbers", [1, 2**15], r"numbers\[1\]"),
        ("numbers", 5, "numbers"),
        ("words", ["a", None], r"words\[1\]"),
        ("words", ["x" * 32768], "words"),
        ("leaf", None, "leaf"),
        ("leaf", "leaf", "leaf"),
        ("leaf", Leaf(number=2**31), r"leaf\.number"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_values_out_of_range_are_named(name: str, value: object, path: str, version: int) -> None:
    message = Everything(**{name: value})
    with pytest.raises(LocalProtocolError, match=f"Everything v{version}: {path}"):
        message.encode(version)


def test_a_string_may_be_as_long_as_kafka_allows() -> None:
    longest = Everything(text="x" * 32767)
    for version in range(4):
        assert Everything.decode(longest.encode(version), version) == longest
    encoded = uvarint(2 + 32768) + b"x" * 32769
    with pytest.raises(ProtocolError, match="client_software_name is longer than 32767 bytes"):
        ApiVersionsRequest.decode(encoded, 3)


@pytest.mark.parametrize("version", [4, 7])
def test_an_error_message_is_shortened_to_what_a_string_holds(version: int) -> None:
    for text in ("é" * 40_000, "x" + "é" * 16_383 + "y", "x" * 32_767):
        result = CreatableTopicResult(name="t", error_code=17, error_message=text)
        data = CreateTopicsResponse(topics=[result]).encode(version)
        found = CreateTopicsResponse.decode(memoryview(data), version).topics[0].error_message
        assert found is not None
        assert 32_760 < len(found.encode()) <= 32_767
        assert found == text or (found[-1] == "…" and text.startswith(found[:-1]))
    too_long = CreateTopicsResponse(topics=[CreatableTopicResult(name="x" * 32_768)])
    with pytest.raises(LocalProtocolError, match="name is "):
        too_long.encode(version)


@pytest.mark.parametrize("version", [-1, 13, 99])
def test_unknown_versions_are_refused(version: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"MetadataRequest has no version {version}"):
        MetadataRequest().encode(version)
    with pytest.raises(ProtocolError, match=f"MetadataRequest has no version {version}"):
        MetadataRequest.decode(b"", version)


@pytest.mark.parametrize(
    ("data", "version", "reason"),
    [
        ("00000001" + "0002" + "c328", 0, "not UTF-8"),
        ("7fffffff" + "0001" + "61", 0, "topics claims 2147483647, but 3 bytes are left"),
        ("00000001" + "7fff" + "61", 0, "name claims 32767, but 1 bytes are left"),
        ("ffffffff0f" + "0261", 9, "topics claims 4294967294, but 2 bytes are left"),
        ("", 0, "cut short"),
    ],
)
def test_errors_name_the_problem(data: str, version: int, reason: str) -> None:
    with pytest.raises(ProtocolError, match=f"MetadataRequest v{version}: .*{reason}"):
        MetadataRequest.decode(bytes.fromhex(data), version)


def test_an_offset_past_the_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match="cut short"):
        MetadataRequest.decode(b"\x00", 9, 5)


def produce(records: Any) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def records_of(request: ProduceRequest) -> Any:
    return request.topic_data[0].partition_data[0].records


@pytest.mark.parametrize("version", [3, 9])
def test_records_are_a_view_of_the_frame(version: int) -> None:
    frame = bytearray(produce(b"0123456789").encode(version))
    view = records_of(ProduceRequest.decode(memoryview(frame), version))
    assert isinstance(view, memoryview)
    view[0:4] = b"offs"
    assert b"offs456789" in frame
    assert records_of(ProduceRequest.decode(produce(None).encode(version), version)) is None
    assert records_of(ProduceRequest.decode(produce(b"").encode(version), version)) == b""


def test_records_in_a_file_are_left_alone() -> None:
    class Slice:
        def __len__(self) -> int:
            return 70_000

    piece = Slice()
    partitions = [PartitionData(partition_index=i, records=piece if i else b"few") for i in range(3)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    for version in (4, 12):
        parts = response.encode_parts(version)
        assert [part is piece for part in parts[:4]] == [False, True, False, True]
        whole = b"".join(bytes(70_000) if part is piece else part for part in parts)
        decoded = FetchResponse.decode(whole, version)
        assert [len(p.records) for p in decoded.responses[0].partitions] == [3, 70_000, 70_000]
        with pytest.raises(LocalProtocolError, match="not bytes"):
            response.encode(version)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [0, 10, 5000])
def test_records_encode_from_bytes_like_objects(kind: type[Any], size: int) -> None:
    request = produce(kind(bytes(size)))
    for version in (3, 9):
        encoded = request.encode(version)
        assert isinstance(encoded, bytes)
        assert b"".join(request.encode_parts(version)) == encoded
        assert ProduceRequest.decode(encoded, version) == request


def test_decoded_bytes_are_copies() -> None:
    frame = bytearray(Everything(blob=b"keep").encode(2))
    message = Everything.decode(frame, 2)
    frame[:] = bytes(len(frame))
    assert message.blob == b"keep"
    assert type(message.blob) is bytes


def test_defaults_are_fresh_each_time() -> None:
    one, two = MetadataResponse(), MetadataResponse()
    one.brokers.append(MetadataResponseBroker())
    assert two.brokers == []
    assert Everything().leaf is not Everything().leaf
    with pytest.raises(TypeError):
        MetadataResponse(nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MetadataResponse(1)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        one.nonsense = 1  # type: ignore[attr-defined]


def test_equality_representation_and_copies() -> None:
    broker = MetadataResponseBroker(node_id=1, host="h", port=2)
    assert broker == MetadataResponseBroker(node_id=1, host="h", port=2, rack=None)
    assert broker != MetadataResponseBroker(node_id=2, host="h", port=2)
    assert broker != "broker"
    assert repr(broker) == "MetadataResponseBroker(node_id=1, host='h', port=2, rack=None)"
    assert copy.deepcopy(broker) == broker
    assert pickle.loads(pickle.dumps(broker)) == broker
    with pytest.raises(TypeError, match="unhashable"):
        hash(broker)


def test_a_declaration_without_field_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.number is not declared"):

        class Wrong(Struct):
            number: Int32


def test_version_ranges() -> None:
    assert version_range("3") == (3, 3)
    assert version_range("3-5") == (3, 5)
    assert version_range("3+")[0] == 3
    first, last = version_range("none")
    assert first > last
    assert (MetadataResponse.VERSIONS, MetadataResponse.FLEXIBLE, MetadataResponse.API_KEY) == ((0, 12), 9, 3)
    assert Everything.API_KEY is None


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31 - 1, 2**32 - 1])
def test_varints(value: int) -> None:
    encoded = uvarint(value)
    assert read_uvarint(b"\x00" + encoded + b"\x01", 1) == (value, 1 + len(encoded))
    if value > 127:
        assert finish_uvarint(encoded, 1, encoded[0]) == (value, len(encoded))
    for cut in range(len(encoded)):
        with pytest.raises(IndexError):
            read_uvarint(encoded[:cut], 0)


def test_a_large_cluster_survives() -> None:
    partitions = [
        MetadataResponsePartition(partition_index=i, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1])
        for i in range(200)
    ]
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)])
    for version in range(13):
        assert MetadataResponse.decode(response.encode(version), version) == response


def test_importing_messages_compiles_nothing() -> None:
    code = (
        "import sys\n"
        "import ottla_protocol.messages.metadata\n"
        "print(sorted({'dataclasses', 'inspect', 'ottla_protocol.encoding'} & set(sys.modules)))"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"
