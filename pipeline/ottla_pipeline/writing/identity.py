"""The identity of a task's records: the same when its batch is tried again, carried by each record in a header.

The header ``ottla.write`` is text, ``<writer>/<batch>/<task>``: the streaming query's id (or one made for a batch
write), the micro-batch's number, and the task's. If the row itself named its partition, ``/p`` follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

HEADER: Final = "ottla.write"
_PINNED: Final = "/p"


class Kind(Enum):
    """How often Spark can repeat a writer's batch."""

    STREAM = "stream"
    """Once in each run of its query: a sink of a stream."""
    IN_STREAM = "in stream"
    """Once in each run, as far as that can be known: a write inside ``foreachBatch``."""
    NAMED = "named"
    """Any number of times: the program names writer and batch."""
    ONCE = "once"
    """Never; only its tasks are tried again."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one task of one batch; ``attempt`` counts the task's tries.

    ``run`` is new with each start of the query and with each named write; inside ``foreachBatch`` it is
    ``<run of the query>/<write>``.
    """

    writer: str
    batch: int
    task: int
    run: str
    attempt: int = 0
    kind: Kind = Kind.STREAM

    @property
    def group(self) -> str:
        """The group whose offsets are this writer's marks."""
        return f"ottla-{'write' if self.kind is Kind.ONCE else 'sink'}-{self.writer}"

    def transactional_id(self, topic: str | None) -> str:
        """The transactional id of this writer by default; ``topic`` is the one that all rows go to, if any.

        Writes with the same name to several topics are several writes.
        """
        return f"{self.group}-{topic}" if self.kind is Kind.NAMED and topic is not None else self.group

    @property
    def keeps_marks(self) -> bool:
        """Whether the writer's marks are needed after the write."""
        return self.kind is not Kind.ONCE

    @property
    def first(self) -> bool:
        """Whether a writer without any marks can't have written anything of this batch."""
        return self.batch == 0 or self.kind is Kind.NAMED

    def is_sibling(self, run: str) -> bool:
        """Whether ``run`` is another write in the same run of the query."""
        return (
            self.kind is Kind.IN_STREAM
            and run != self.run
            and run.partition("/")[0] == self.run.partition("/")[0]
        )

    def __str__(self) -> str:
        return f"{self.writer}/{self.batch}/{self.task}"

    def header(self, pinned: bool) -> tuple[str, bytes]:
        """The header of this task's records; ``pinned``: of records whose rows named their partition."""
        return HEADER, f"{self}{_PINNED if pinned else ''}".encode()

    def pattern(self, any_task: bool) -> str:
        """A regular expression for the headers of this task, or of every task of its batch."""
        return f"^{re.escape(self.writer)}/{self.batch}/{'[0-9]+' if any_task else self.task}({_PINNED})?$"


def is_pinned(header: bytes) -> bool:
    """Whether a header's value says that the row named its partition."""
    return header.endswith(_PINNED.encode())
