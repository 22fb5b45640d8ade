"""Commits a query's progress to its consumer group, so that every Kafka tool shows its lag."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla_client import TopicPartition
from ottla_client.errors import ClientError

from .cluster_queries import ClusterQueries
from .errors import SourceError

log = logging.getLogger("ottla_pipeline")


class GroupCommits:
    """One reader's commits. They come after the data is safe, so a failed commit loses nothing."""

    def __init__(self, cluster: ClusterQueries, group: str, *, required: bool) -> None:
        """``required``: raise if the broker refuses a commit for good, instead of logging it."""
        self._cluster = cluster
        self._group = group
        self._required = required
        self._done: dict[TopicPartition, int] = {}
        self._said = ""

    def done(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets up to which all records are done; skips those that it has committed already.

        Raises SourceError if the broker refuses and commits are required.
        """
        news = {each: offset for each, offset in offsets.items() if self._done.get(each) != offset}
        if not news:
            return
        try:
            self._cluster.commit(self._group, news)
        except ClientError as error:
            if self._required and not error.retriable:
                raise SourceError(
                    f"the offsets can't be committed to group {self._group}: {error}"
                ) from error
            # Log the same error once, not with each batch. The next commit has these offsets, too.
            if str(error) != self._said:
                log.warning("offsets were not committed to group %s: %s", self._group, error)
                self._said = str(error)
        else:
            self._done |= news
            self._said = ""
