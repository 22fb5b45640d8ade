"""What a consumer needs of its group member, whichever protocol it uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from ..deadline import Deadline
from ..errors import ClientError
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class AnyMember(Protocol):
    """A member of the classic protocol (``GroupMember``) or of the consumer protocol (``ConsumerProtocolMember``)."""

    assignment: frozenset[TopicPartition]
    failure: ClientError | None

    def subscribe(self, topics: Collection[str]) -> None: ...

    def start(self) -> None: ...

    def polled(self) -> None: ...

    def joined_metadata(self) -> ConsumerGroupMetadata: ...

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: Deadline
    ) -> None: ...

    async def close(self, deadline: Deadline) -> None: ...
