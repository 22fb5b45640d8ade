"""The ids that coordinators give to members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_broker.store.keys import new_uuid

if TYPE_CHECKING:
    from random import Random


def random_uuid(random: Random) -> str:
    """A random UUID (version 4), with which Kafka's member ids end."""
    text = new_uuid(random).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
