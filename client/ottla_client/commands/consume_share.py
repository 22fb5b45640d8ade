"""``ottla consume --share``: records of a share group, accepted once they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..types import TopicPartition
from .admin_common import plural
from .print_run import POLL_MS, PrintRun
from .topic_checks import require_topics

if TYPE_CHECKING:
    from ..consumer.rows import Rows
    from ..errors import ClientError
    from ..share_consumer import ShareConsumer


class ShareRun(PrintRun["ShareConsumer"]):
    """One run of ``ottla consume --share``. The consumer acknowledges explicitly; its close releases the rest."""

    def _make(self, client_options: dict[str, Any]) -> ShareConsumer:
        from ..share_consumer import ShareConsumer

        consumer = ShareConsumer(**client_options)
        consumer.set_acknowledgement_commit_callback(self._settled)
        return consumer

    async def _topics(self) -> list[str]:
        from ..share_consumer.settings import ShareConsumerSettings

        await require_topics(self._console, ShareConsumerSettings, self._wanted.topics, None)
        return list(dict.fromkeys(self._wanted.topics))

    async def _begin(self, consumer: ShareConsumer, topics: Sequence[str]) -> None:
        consumer.subscribe(topics)

    async def _poll(self, consumer: ShareConsumer, at_most: int) -> list[Rows]:
        from ..share_consumer.consumer import poll_rows

        return await poll_rows(consumer, timeout_ms=POLL_MS, max_records=at_most)

    def _wrote(self, consumer: ShareConsumer, rows: Rows) -> None:
        from ..share_consumer.consumer import accept_rows

        accept_rows(consumer, rows)

    def _settled(self, offsets: Mapping[TopicPartition, frozenset[int]], error: ClientError | None) -> None:
        if error is not None:
            count = plural(sum(map(len, offsets.values())), "record")
            self._console.note(f"{count} may be delivered again: {error}")
