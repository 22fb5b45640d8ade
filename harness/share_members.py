"""Members of share groups by Kafka's Java client, many in one process, and the records that they work on."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NamedTuple

PROGRAM = Path(__file__).parent / "programs" / "KeyedShareMembers.java"


class Worked(NamedTuple):
    """A record that a member began to work on: ``at`` ns on a clock that all processes of the machine share."""

    at: int
    member: str
    key: str
    number: int


class ShareMembers:
    """A process whose members work ``work_ms`` on each record, whose value is a number.

    Attributes:
        worked: what they have begun to work on; another thread adds to it.
        errors: what acknowledgements came back with.
    """

    def __init__(
        self, java: Sequence[str], address: str, group: str, topic: str, members: int, work_ms: int, most: int
    ) -> None:
        """``java``: the command that runs ``PROGRAM``. ``most``: the most records of a poll."""
        arguments = [address, group, topic, str(members), str(work_ms), str(most)]
        self.worked: list[Worked] = []
        self.errors: list[str] = []
        self._process = subprocess.Popen(
            [*java, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("error"):
                self.errors.append(line)
            elif line.count(" ") == 3 and line.endswith("\n"):
                at, member, key, number = line.split()
                self.worked.append(Worked(int(at), member, key, int(number)))

    def kill(self) -> None:
        """Kill it, and read to the end of its output."""
        process = self._process
        process.kill()
        process.wait(60)
        self._reader.join(60)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def close(self) -> None:
        """Let the members leave, and read to the end of their output. Raises TimeoutExpired."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            if not stdin.closed:
                with suppress(BrokenPipeError), stdin:
                    stdin.write("stop\n")
                self._process.wait(60)
        finally:
            self.kill()
