"""Admin: everything that is done to a cluster other than writing and reading records."""

from __future__ import annotations

from .configs import ConfigCalls
from .group_offsets import GroupOffsetCalls
from .groups import GroupCalls
from .nodes import NodeCalls
from .placement import PlacementCalls
from .topics import TopicCalls


class Admin(TopicCalls, ConfigCalls, GroupCalls, GroupOffsetCalls, NodeCalls, PlacementCalls):
    """Looks after topics, configs, groups, offsets and brokers of a cluster.

    ::

        async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            await admin.create_topics([NewTopic("orders", partitions=6, configs={"retention.ms": "86400000"})])
            lag = await admin.group_lag("billing")

    Every call has a deadline, ``timeout`` in seconds or else default_api_timeout_ms, within which it finds the right
    brokers and tries again after lost connections and moved leaders; then it raises RequestTimeoutError. A change
    whose answer was lost is asked for again, so that e.g. creating a topic may end with TOPIC_ALREADY_EXISTS although
    it was this call that made it; the same holds for Java's AdminClient.

    Calls about several things ask for all of them at once and return results by thing. If some fail, they raise
    PartialError with the results of the others; a call about one thing raises that thing's own error.

    Calls may be made concurrently. Works with Ottla and with Apache Kafka; a call that a broker is too old for raises
    UnsupportedApiError.
    """
