"""What a query has done with, committed to its consumer group, so that every tool for Kafka sees its lag."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ottla_client import TopicPartition
from ottla_client.errors import ClientError

from .cluster_queries import ClusterQueries
from .errors import SourceError

log = logging.getLogger("ottla_pipeline")


class GroupCommits:
    """Belongs to one reader. The data is safe before anything comes here: a commit that fails loses nothing."""

    def __init__(self, cluster: ClusterQueries, group: str, *, required: bool) -> None:
        """``required``: a commit that the broker refuses for good is an error, rather than logged."""
        self._cluster = cluster
        self._group = group
        self._required = required
        self._done: dict[TopicPartition, int] = {}
        self._said = ""

    def done(self, offsets: Mapping[TopicPartition, int]) -> None:
        """All records before these offsets are done with. What was committed before isn't again.

        Raises SourceError for a refusal, where it is required.
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
            # Once: it would be said again with each batch. The next commit has these offsets, too.
            if str(error) != self._said:
                log.warning("offsets were not committed to group %s: %s", self._group, error)
                self._said = str(error)
        else:
            self._done |= news
            self._said = ""
