"""A listener that commits a query's offsets to its group as soon as a batch is done.

``format("ottla")`` commits a batch when Spark asks for the next one: that may be much later, and for a query that was
stopped only at its next start. This listener commits when Spark reports that the batch is done. It also works for
queries of Spark's own connector, which never commits::

    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders", "kafka.group.id": "reports"}
    spark.streams.addListener(GroupCommitListener(options))
    spark.readStream.format("ottla").options(**options).load()…
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla_client import TopicPartition
from ottla_client.errors import ClientError

from .source.cluster_queries import ClusterQueries
from .source.errors import OptionError, SourceError
from .source.groups import GroupCommits
from .source.offsets import Offsets
from .source.options import Topics, resolve

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("ottla_pipeline")


class GroupCommitListener(StreamingQueryListener):
    """Commits for every query of this session that reads these topics, or for the named one.

    Spark calls listeners one after the other in one thread. A failed commit is logged: the data is safe, and the next
    batch's commit includes its offsets.
    """

    def __init__(self, options: Mapping[str, str], query: str | None = None) -> None:
        """``options``: the reader's; ``query``: a query's name. Raises OptionError."""
        made = resolve(options, stream=True)
        if made.group is None:
            raise OptionError("set kafka.group.id, the group to commit to")
        self._topics = made.topics
        self._query = query
        self._cluster = ClusterQueries(made.bootstrap_servers, made.client)
        self._commits = GroupCommits(self._cluster, made.group, required=False)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: no batch is done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the batch's end offsets."""
        if self._query is not None and event.progress.name != self._query:
            return
        for source in json.loads(event.progress.json)["sources"]:
            offsets = offsets_of(source.get("endOffset"))
            if offsets and all(reads(self._topics, partition) for partition in offsets):
                self._commits.done(offsets)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: nothing new is done."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Close the connections; another query opens new ones."""
        try:
            self._cluster.close()
        except ClientError as error:
            log.warning("the listener's connections could not be closed: %s", error)


def offsets_of(given: Any) -> Mapping[TopicPartition, int]:
    """The end offsets of a source that reads topics; empty for any other source."""
    try:
        return Offsets.of_text(given).of if isinstance(given, str) else Offsets.of_json(given or {}).of
    except SourceError:
        return {}


def reads(topics: Topics, partition: TopicPartition) -> bool:
    """Whether a source with these options reads a partition."""
    if topics.pattern is not None:
        return re.search(topics.pattern, partition.topic) is not None
    return partition.topic in topics.names or partition in topics.assigned
