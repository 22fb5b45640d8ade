"""The ids that coordinators give to members."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def random_uuid(random: Random) -> str:
    """A random UUID (version 4), with which Kafka's member ids end."""
    bits = random.getrandbits(128) & ~(0xF << 76 | 3 << 62) | (4 << 76 | 2 << 62)
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
