"""The messages on the page are those that the text says."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

from ottla_protocol import push
from ottla_protocol.push import PartitionOffset, PingRequest, RequestType

PAGE = ROOT / "docs" / "coordinated-consumers.md"


def test_every_message_on_the_page_can_be_read() -> None:
    lines = re.findall(r"^\d+ ([ab]) ([<>]) ([0-9a-f]+)$", PAGE.read_text(encoding="utf-8"), re.M)
    assert len(lines) == 17
    seen = []
    asked: list[RequestType] = []
    for consumer, way, text in lines:
        reader = push.FrameReader(push.MAX_REGISTRATION)
        (frame,) = reader.feed(bytes.fromhex(text))
        if way == ">":
            message = push.decode_from_consumer(frame)
            if message.type in (RequestType.CLUSTER_METADATA, RequestType.REGISTER_CONSUMER):
                asked.append(message.type)
            seen.append((consumer, message.type.name))
        elif asked and asked.pop() is RequestType.CLUSTER_METADATA:
            assert push.ClusterMetadataResponse.decode(frame).coordinator_id == 1
        elif len(frame) == 2:
            assert push.RegisterConsumerResponse.decode(frame).error_code == 0
        else:
            pushed = push.decode_push(frame)
            seen.append((consumer, pushed.type.name))
            if isinstance(pushed, push.StartFetcherRequest):
                (owned,) = pushed.ownership
                expected = {"a": PartitionOffset("orders", 0, 3), "b": PartitionOffset("orders", 1, 1)}
                assert owned.partitions == (expected[consumer],)
    assert PingRequest("billing_b", push.CONFIRMATION).encode().hex() in {text for *_, text in lines}
    assert [name for _, name in seen].count("STOP_FETCHER") == 4
