"""Admin: administration of a cluster."""

from __future__ import annotations

from .acls import AclCalls
from .configs import ConfigCalls
from .features import FeatureCalls
from .group_offsets import GroupOffsetCalls
from .groups import GroupCalls
from .nodes import NodeCalls
from .passwords import PasswordCalls
from .placement import PlacementCalls
from .quotas import QuotaCalls
from .share_groups import ShareGroupCalls
from .tokens import TokenCalls
from .topics import TopicCalls
from .transactions import TransactionCalls
from .zookeeper_offsets import ZooKeeperOffsetCalls


class Admin(
    TopicCalls,
    ConfigCalls,
    GroupCalls,
    GroupOffsetCalls,
    ShareGroupCalls,
    ZooKeeperOffsetCalls,
    NodeCalls,
    FeatureCalls,
    PlacementCalls,
    TransactionCalls,
    AclCalls,
    QuotaCalls,
    TokenCalls,
    PasswordCalls,
):
    """Administers a cluster: its topics, configs, groups, offsets, brokers, features, ACLs, quotas, passwords, …

    ::

        async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            await admin.create_topics([NewTopic("orders", partitions=6, configs={"retention.ms": "86400000"})])
            lag = await admin.group_lag("billing")

    Every call has a deadline: ``timeout`` in seconds, or default_api_timeout_ms. Until then it finds the right brokers
    and retries after lost connections and moved leaders; then it raises RequestTimeoutError. A change whose response
    was lost is sent again, so creating a topic may end with TOPIC_ALREADY_EXISTS although this call created it. Java's
    AdminClient does the same.

    A call about several items sends requests for all of them at once and returns results by item. If some fail, it
    raises PartialError with the results of the others; a call about one item raises that item's error.

    Calls may run concurrently. Admin works with Ottla and with Apache Kafka; a call that a broker is too old for raises
    UnsupportedApiError.
    """
