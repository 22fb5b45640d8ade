"""A Java program of our own, compiled against Kafka's unmodified client library."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.support import PROGRAMS, Java, needed, run


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_group_round_trip(java: Java, compiled: Path, codec: str) -> None:
    command = java.command("GroupRoundTrip", java.address, f"round-trip-{codec}", codec, classes=compiled)
    assert run(command).splitlines()[-1] == "ok"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    run([needed("javac"), "-cp", f"{java_libs}/*", "-d", str(folder), str(PROGRAMS / "GroupRoundTrip.java")])
    return folder
