"""Who writes: a name that a batch keeps when it is tried again, carried by each record in a header.

The header ``ottla.write`` is text, ``<writer>/<batch>/<task>``: the streaming query's id (or one made for a batch
write), the micro-batch's number, and the task's. Where the row itself named its partition, ``/p`` follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEADER: Final = "ottla.write"
_PINNED: Final = "/p"


@dataclass(frozen=True, slots=True)
class Identity:
    """One task's of one batch. ``run`` is anew with each start of the query, ``attempt`` counts tries of the task."""

    writer: str
    batch: int
    task: int
    run: str
    attempt: int = 0
    streaming: bool = True

    @property
    def group(self) -> str:
        """The group whose offsets are this writer's marks."""
        return f"ottla-{'sink' if self.streaming else 'write'}-{self.writer}"

    def __str__(self) -> str:
        return f"{self.writer}/{self.batch}/{self.task}"

    def header(self, pinned: bool) -> tuple[str, bytes]:
        """The header of this task's records; ``pinned``: of those whose rows named their partition."""
        return HEADER, f"{self}{_PINNED if pinned else ''}".encode()

    def pattern(self, any_task: bool) -> str:
        """A regular expression for the headers of this task, or of every task of its batch."""
        return f"^{self.writer}/{self.batch}/{'[0-9]+' if any_task else self.task}({_PINNED})?$"


def is_pinned(header: bytes) -> bool:
    """Whether the row had named its partition, by the header's value."""
    return header.endswith(_PINNED.encode())
