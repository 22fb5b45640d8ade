"""The topics that a consumer says it is subscribed to, out of its JoinGroup metadata.

Only the part that every version of the format begins with is read, so that versions to come are understood as
well (KIP-211 wants the topics and nothing else)::

    ConsumerProtocolSubscription => version:int16 topics:[string] …
    string => length:int16 utf-8 bytes
"""

from __future__ import annotations

from struct import error as StructError
from struct import unpack_from

PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose metadata has this form; Connect and others have forms of their own."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics in one member's metadata. Raises ValueError for bytes that are not a subscription."""
    try:
        version, count = unpack_from(">hi", metadata)
        if version < 0:
            raise ValueError(f"version {version}")
        topics = set()
        position = 6
        for _ in range(count):
            (length,) = unpack_from(">h", metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                raise ValueError("a topic name runs past the end")
            topics.add(metadata[position : position + length].decode())
            position += length
    except StructError:
        raise ValueError("not a consumer subscription: it ends too early") from None
    except ValueError as error:
        raise ValueError(f"not a consumer subscription: {error}") from None
    return frozenset(topics)
