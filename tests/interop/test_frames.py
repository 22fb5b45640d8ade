"""Kafka as the judge of compressed frames: the golden verdicts are still its own, and it reads all that Ottla stores.

``OTTLA_WRITE_GOLDEN=1`` writes the verdicts again.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness.java import find_java
from tests.interop.conftest import jars_of
from tests.interop.support import PROGRAMS, needed, run
from tests.log.test_frames import stored
from tests.support import frames


class Judge:
    """A version of Kafka's LogValidator and of its consumer's reader."""

    def __init__(self, version: str, folder: Path) -> None:
        self._libs = jars_of(version)
        self._classes = folder / version
        self._classes.mkdir()
        text = (PROGRAMS / "Frames.java").read_text()
        if not version.startswith("3."):
            # Kafka 4 has moved its own classes out of the public packages.
            text = re.sub(r"common\.record\.(?!TimestampType)", "common.record.internal.", text)
            text = re.sub(r"common\.utils\.(?!Time;)", "common.utils.internals.", text)
        program = self._classes / "Frames.java"
        program.write_text(text)
        run([needed("javac"), "-cp", f"{self._libs}/*", "-d", str(self._classes), str(program)])

    def verdicts(self, sent: Sequence[bytes]) -> list[str]:
        """What it says of each: "stored" or an error, and whether a consumer reads the values."""
        data = b"".join(struct.pack(">i", len(each)) + each for each in sent) + struct.pack(">i", -1)
        command = [find_java(), "-Xmx512M", "-cp", f"{self._libs}/*:{self._classes}", "Frames"]
        done = subprocess.run(command, input=data, capture_output=True, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        values = frames.values()
        whole = f"{len(values)}:{zlib.crc32(b''.join(values))}"
        return [
            f"{said} {'reads' if read == whole else 'fails' if read in ('fails', 'hangs') else 'differs'}"
            for said, read in (line.split() for line in done.stdout.decode().splitlines())
        ]


def test_frames_are_judged_as_the_golden_verdicts_say(tmp_path: Path) -> None:
    cases = list(frames.cases())
    said = [Judge(version, tmp_path).verdicts([case.data for case in cases]) for version in frames.KAFKAS]
    found = dict(zip([case.name for case in cases], zip(*said, strict=True), strict=True))
    if os.environ.get("OTTLA_WRITE_GOLDEN"):
        frames.write_verdicts(found)
    assert found == frames.verdicts()


@pytest.mark.parametrize("version", frames.KAFKAS)
def test_java_reads_what_ottla_stores_of_frames(version: str, tmp_path: Path) -> None:
    batches = [batch for batch in map(stored, frames.cases()) if isinstance(batch, bytes)]
    found = Judge(version, tmp_path).verdicts(batches)
    assert len(found) > 300
    # Sets of which less, or more, can be read are the exception; whatever is stored can be read.
    assert {each.split()[1] for each in found} == {"reads", "differs"}
    assert found.count("stored differs") < 20
