"""Who writes: a name that a batch keeps when it is tried again, carried by each record in a header.

The header ``ottla.write`` is text, ``<writer>/<batch>/<task>``: the streaming query's id (or one made for a batch
write), the micro-batch's number, and the task's. Where the row itself named its partition, ``/p`` follows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

HEADER: Final = "ottla.write"
_PINNED: Final = "/p"


class Kind(Enum):
    """How often a writer's batch may come."""

    STREAM = "stream"
    """Once in each run of its query: Spark's own sinks."""
    IN_STREAM = "in stream"
    """The same, as far as it can be seen: a write inside ``foreachBatch``."""
    NAMED = "named"
    """Whenever it is tried again: the program names writer and batch."""
    ONCE = "once"
    """Never again; only its tasks are tried again."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One task's of one batch. ``attempt`` counts tries of the task.

    ``run`` is anew with each start of the query, ``<run of the query>/<write>`` inside ``foreachBatch``, and anew with
    each write that is named.
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

    @property
    def lasting(self) -> bool:
        """Whether its marks are of use when the write is over."""
        return self.kind is not Kind.ONCE

    @property
    def first(self) -> bool:
        """Whether nothing of this batch can be there where the writer has no marks at all."""
        return self.batch == 0 or self.kind is Kind.NAMED

    def beside(self, run: str) -> bool:
        """Whether ``run`` is another write in the same run of the query."""
        return (
            self.kind is Kind.IN_STREAM
            and run != self.run
            and run.partition("/")[0] == self.run.partition("/")[0]
        )

    def __str__(self) -> str:
        return f"{self.writer}/{self.batch}/{self.task}"

    def header(self, pinned: bool) -> tuple[str, bytes]:
        """The header of this task's records; ``pinned``: of those whose rows named their partition."""
        return HEADER, f"{self}{_PINNED if pinned else ''}".encode()

    def pattern(self, any_task: bool) -> str:
        """A regular expression for the headers of this task, or of every task of its batch."""
        return f"^{re.escape(self.writer)}/{self.batch}/{'[0-9]+' if any_task else self.task}({_PINNED})?$"


def is_pinned(header: bytes) -> bool:
    """Whether the row had named its partition, by the header's value."""
    return header.endswith(_PINNED.encode())
