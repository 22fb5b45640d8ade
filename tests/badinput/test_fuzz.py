"""Thousands of mutated requests of every API and version against a live broker: it goes on serving, and none is a bug.

``OTTLA_FUZZ_FRAMES=100000 OTTLA_FUZZ_SEED=7 pytest tests/badinput/test_fuzz.py`` goes on for longer.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from tests.badinput.requests import fetch, fetch_request, produce, produce_request, records
from tests.badinput.test_groups import join_request
from tests.protocol.samples import sample
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.wire import Wire, request_bytes

from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.registry import request_class

FRAMES = int(os.environ.get("OTTLA_FUZZ_FRAMES", "5000"))
SEED = int(os.environ.get("OTTLA_FUZZ_SEED", "1"))
PER_CONNECTION = 3
"""Few: the first that cannot be read ends the connection."""
MEMORY = 250_000_000
"""Far above what a broker needs for this, and far below what a lying length could make it take."""


class Corpus:
    """Whole requests, without their size: of every API and version that is advertised, and some that make sense."""

    def __init__(self, wire: Wire, topic: str, chance: random.Random) -> None:
        self._chance = chance
        served = wire.call(
            ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 3
        ).api_keys
        self._versions = [
            (api.api_key, version)
            for api in served
            for version in range(api.min_version, api.max_version + 1)
        ]
        batches = [
            bytes(records(b"v" * 50, codec=codec, **extra))
            for codec in range(5)
            for extra in ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0})
        ]
        sensible = [(produce_request(topic, batch, acks=acks), 9) for batch in batches for acks in (-1, 0, 1)]
        sensible += [
            (fetch_request(topic, offset), version) for offset in (0, 3) for version in (4, 7, 11, 12)
        ]
        sensible += [(join_request("g"), version) for version in (0, 4, 9)]
        sensible += [(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), v) for v in (1, 9, 12)]
        self._sensible = [request_bytes(message, version)[4:] for message, version in sensible]

    def draw(self) -> bytearray:
        if self._chance.random() < 0.4:
            return bytearray(self._chance.choice(self._sensible))
        api_key, version = self._chance.choice(self._versions)
        message = sample(request_class(api_key, version), version, self._chance)
        return bytearray(request_bytes(message, version, self._chance.randrange(2**31))[4:])


def mutate(frame: bytearray, other: bytearray, chance: random.Random) -> None:
    """Change the frame in place in one of the ways that parsers fall over."""
    position = chance.randrange(len(frame)) if frame else 0
    what = chance.randrange(8)
    if what == 0 and frame:
        frame[position] ^= 1 << chance.randrange(8)
    elif what == 1 and frame:
        frame[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif what == 2:
        del frame[position:]
    elif what == 3:
        frame[position:position] = chance.randbytes(chance.choice((1, 2, 4, 8, 100)))
    elif what == 4 and len(frame) >= position + 4:
        number = chance.choice((-(2**31), -2, -1, 0, 1, 2**15, 2**24, 2**31 - 1))
        struct.pack_into(">i", frame, position, number)
    elif what == 5:
        frame[position:] = other[chance.randrange(len(other) + 1) :]
    elif what == 6 and len(frame) >= 4:
        struct.pack_into(">h", frame, 2, chance.randrange(-1, 20))
    elif what == 7:
        del frame[position : position + chance.randrange(1, 20)]


def send_and_go(port: int, data: bytes) -> None:
    """Send all that is taken, read a little, and hang up."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.settimeout(1)
        connection.sendall(data)
        connection.settimeout(0.002)
        while connection.recv(1 << 16):
            pass


@pytest.mark.ottla_only  # its memory, its versions
def test_mutated_requests(own_broker: Callable[..., BrokerProcess]) -> None:
    chance = random.Random(SEED)
    broker = own_broker(settings={"auto.create.topics.enable": False, "group.max.session.timeout.ms": 2000})
    for topic in ("fuzzed", "bystander"):
        create_topic(broker, topic)
    process = psutil.Process(broker.pid)
    produced = 0
    with Wire(broker.port) as bystander:
        corpus = Corpus(bystander, "fuzzed", chance)
        for round_ in range(1, FRAMES // PER_CONNECTION):
            data = bytearray()
            for _ in range(PER_CONNECTION):
                frame = corpus.draw()
                for _ in range(chance.choice((0, 1, 1, 1, 2, 5))):
                    mutate(frame, corpus.draw(), chance)
                lie = chance.choice((-1, 1, 1000, 2**30)) if chance.random() < 0.01 else 0
                data += struct.pack(">i", len(frame) + lie) + frame
            send_and_go(broker.port, data)
            if round_ % 50 == 0:
                where = f"after {round_ * PER_CONNECTION} frames with seed {SEED}"
                assert produce(bystander, "bystander", records(b"alive")) == (0, produced), where
                assert b"alive" in fetch(bystander, "bystander", produced)[1], where
                produced += 1
                complaints = broker.complaints()
                assert not complaints, f"{where}: {complaints[0]}"
                assert process.memory_info().rss < MEMORY, where
    assert broker.stop(5) == 0
