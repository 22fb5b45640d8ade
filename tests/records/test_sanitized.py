"""The record engine under the address and undefined-behaviour sanitizers, fed with damaged batches.

It is compiled for that, and runs in a process of its own. Walks are held against the twin in Python.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from tests.support.depth import inputs

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("gcc")


def library(name: str) -> str:
    command = [COMPILER or "gcc", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs gcc's sanitizers")
def test_damaged_batches(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from hatch_build import compile_engine

    if not os.path.isabs(library("libasan.so")):
        pytest.skip("gcc has no sanitizers here")
    binary = tmp_path / "_records.abi3.so"
    options = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    compile_engine(ROOT, binary, *options)
    count = max(500, inputs() // 40)
    run = subprocess.run(
        [sys.executable, "-m", "tests.records.test_sanitized", str(binary), str(count)],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_PRELOAD": library("libasan.so"),
            "ASAN_OPTIONS": "detect_leaks=0",
            "PYTHONMALLOC": "malloc",
        },
        capture_output=True,
        text=True,
        timeout=60 + count / 20,
    )
    assert run.returncode == 0, run.stderr[-5000:]


def batch(chance: random.Random) -> bytes:
    from ottla_protocol.records.record import encode_batch

    rows = [
        (
            chance.randrange(-5, 2**40),
            chance.choice([None, b"", b"key", chance.randbytes(chance.randrange(200))]),
            chance.choice([None, b"", chance.randbytes(chance.randrange(200))]),
            chance.choice([(), (), (("name", None),), (("", b"value"),)]),
        )
        for _ in range(chance.randrange(1, 12))
    ]
    return bytes(encode_batch(rows, base_offset=chance.choice([0, 7, 2**40])))


def damaged(data: bytes, chance: random.Random) -> bytes:
    from ottla_protocol.records.batch import write_crc

    changed = bytearray(data)
    for _ in range(chance.randrange(3)):
        changed[chance.randrange(len(changed))] = chance.choice(
            [0, 1, 2, 127, 128, 255, chance.randrange(256)]
        )
    if chance.random() < 0.2:
        del changed[chance.randrange(61, len(changed) + 1) :]
    if chance.random() < 0.8:
        changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
        write_crc(changed, 0, len(changed))
    return bytes(changed)


def walk_both(engine: object, data: bytes, chance: random.Random) -> None:
    from ottla_protocol.records.walk import PythonWalk

    count = int.from_bytes(data[57:61], "big", signed=True) if chance.random() < 0.8 else 3
    count = min(count, 1 << 20)
    finds = chance.random() < 0.3
    asked = (
        0,
        count,
        chance.choice([0, 5, 2**63 - 1, -(2**63)]),
        0,
        2**41,
        True,
        finds,
        1,
        chance.randrange(2**40),
    )
    walks = [engine.Walk(*asked), PythonWalk(*asked)]  # type: ignore[attr-defined]
    at, goes_on = 61, True
    while at < len(data) and goes_on:
        end = min(len(data), at + chance.choice([1, 7, 40, 4000]))
        goes_on, twin = (walk.feed(bytes(data[at:end]), 0, end - at) for walk in walks)
        assert goes_on == twin, (data, asked)
        at = end
    compiled, plain = (walk.result() for walk in walks)
    assert compiled[0] == plain[0], (data, asked, compiled, plain)
    if not compiled[0]:
        assert compiled == tuple(plain), (data, asked)


def drive(binary: str, count: int) -> None:
    """Give the engine's functions ``count`` inputs. A sanitizer ends the process."""
    name = "ottla_protocol.records._records"
    spec = spec_from_file_location(name, binary)
    assert spec is not None
    assert spec.loader is not None
    engine = module_from_spec(spec)
    spec.loader.exec_module(engine)
    sys.modules[name] = engine
    chance = random.Random()
    for _ in range(count):
        parts = [damaged(batch(chance), chance) for _ in range(chance.randrange(1, 4))]
        data = b"".join(parts)
        walk_both(engine, parts[0], chance)
        offsets = engine.OffsetMap(97, 7, 0.9, bytes(16))
        offsets.read_keys(data, 0, 0)
        offsets.filter(data, 0, 5, 1000, -1, 64, b"")
        offsets.filter_body(data[61:], 3, 0, 7, True, 99)
        engine.scan_segment(data, 0, 0, 0, 2**41, 64, 0, -1, 0, -1)
        engine.plain_batches(data, 0, 1, 0)
        engine.body_as_messages(data[61:], 3, 0, 0, 0, False, 1, True)
        engine.messages_as_records(data, chance.randrange(2), 7)
        engine.list_batches(data, 0, len(data), 0, 2**62, bytearray(8 * 11 * 4))


if __name__ == "__main__":
    drive(sys.argv[1], int(sys.argv[2]))
