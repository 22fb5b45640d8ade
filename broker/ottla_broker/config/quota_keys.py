"""Keys of quotas. The quotas themselves are set at runtime, with AlterClientQuotas."""

from __future__ import annotations

from ottla_broker.config.model import CLUSTER_WIDE, INT, INT_MAX, Key, at_least, integer


class QuotaKeys:
    """Keys of measuring clients' quotas, and of how fast clients may connect."""

    quota_window_num = integer(11, "Windows over which client quotas are measured.", at_least(1))
    quota_window_size_seconds = integer(1, "The length of such a window.", at_least(1))
    controller_quota_window_num = integer(
        11, "Windows over which creations and deletions of partitions are measured.", at_least(1)
    )
    controller_quota_window_size_seconds = integer(1, "The length of such a window.", at_least(1))
    max_connection_creation_rate = Key(
        INT,
        INT_MAX,
        "The most new connections per second. Further ones wait to be accepted.",
        at_least(0),
        CLUSTER_WIDE,
    )
