"""Request frames, most of them nearly right: each is read or is a ProtocolError."""

from __future__ import annotations

import random
import tracemalloc

from tests.protocol.samples import all_versions, sample
from tests.support.depth import inputs

from ottla_protocol.errors import ProtocolError
from ottla_protocol.header import RequestHeader, encode_request_header, parse_request_header
from ottla_protocol.registry import request_class, response_class
from ottla_protocol.schema import Message

INPUTS = inputs()
WORDS = tuple(
    value.to_bytes(size, "big")
    for size in (1, 2, 4, 8)
    for value in (0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size - 1), 2 ** (8 * size) - 1)
)
VARINTS = (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\xff\xff", b"\x80\x01")


def read_request(frame: bytes | bytearray) -> Message:
    """What a broker does with a frame, up to its handler."""
    header, position = parse_request_header(frame)
    return request_class(header.api_key, header.api_version).decode(frame, header.api_version, position)


def request_frames(rng: random.Random) -> list[bytes]:
    frames = []
    for cls, version in all_versions():
        if cls.API_KEY is None or not cls.__name__.endswith("Request"):
            continue
        for client_id in ("a client", None):
            header = RequestHeader(cls.API_KEY, version, rng.randrange(2**31), client_id)
            frames.append(encode_request_header(header) + sample(cls, version, rng).encode(version))
    return frames


def damaged(frame: bytes, rng: random.Random) -> bytearray:
    data = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        kind = rng.random()
        if kind < 0.35 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 0.6:
            word = rng.choice(WORDS)
            data[at : at + len(word)] = word
        elif kind < 0.75:
            word = rng.choice(VARINTS)
            data[at : at + rng.randint(0, len(word))] = word
        elif kind < 0.85:
            del data[at : at + rng.randint(1, 9)]
        elif kind < 0.95:
            start = rng.randrange(len(data) + 1)
            data[at:at] = data[start : start + rng.randint(1, 30)]
        else:
            del data[at:]
    return data


def test_frames_are_requests_or_protocol_errors() -> None:
    rng = random.Random(20240229)
    frames = request_frames(rng)
    for frame in frames:
        read_request(frame)
    understood = refused = 0
    for number in range(INPUTS):
        if number % 10 == 0:
            data = bytearray(rng.randbytes(rng.randrange(60)))
            if number % 20 == 0 and len(data) > 4:
                data[:4] = bytes((0, rng.randrange(76), 0, rng.randrange(18)))
        else:
            data = damaged(rng.choice(frames), rng)
        try:
            read_request(data)
        except ProtocolError:
            refused += 1
        else:
            understood += 1
    assert understood + refused == INPUTS
    assert min(understood, refused) > INPUTS // 10


def test_answers_are_responses_or_protocol_errors() -> None:
    rng = random.Random(20240301)
    answers = []
    for cls, version in all_versions():
        if cls.API_KEY is not None and cls is response_class(cls.API_KEY):
            answers.append((cls, version, sample(cls, version, rng).encode(version)))
    refused = 0
    for _ in range(INPUTS // 10):
        cls, version, encoded = rng.choice(answers)
        try:
            cls.decode(damaged(encoded, rng), version)
        except ProtocolError:
            refused += 1
    assert refused > INPUTS // 100


def test_false_lengths_take_no_memory() -> None:
    """Each four-byte word and each varint of every message is made huge in turn."""
    rng = random.Random(20240302)
    messages = []
    for cls, version in all_versions():
        encoded = sample(cls, version, rng).encode(version)[:400]
        messages.append((cls, version, encoded))
        try:
            cls.decode(encoded, version)  # compiled before memory is counted
        except ProtocolError:
            continue
    tracemalloc.start()
    try:
        for cls, version, encoded in messages:
            for at in rng.sample(range(len(encoded)), min(10, len(encoded))):
                for word in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07"):
                    data = encoded[:at] + word + encoded[at + len(word) :]
                    try:
                        cls.decode(data, version)
                    except ProtocolError:
                        continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
