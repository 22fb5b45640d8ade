"""What the broker serves: one module an API, each with a ``handle(ctx, request)``.

The table is the single place that says which APIs and versions are served; ApiVersions answers from it.
"""

from __future__ import annotations

from typing import NamedTuple


class Served(NamedTuple):
    """One API: the module of its handler, and the versions that are advertised and served."""

    module: str
    min_version: int
    max_version: int
    advertised_min: int


def _api(module: str, min_version: int, max_version: int, advertised_min: int | None = None) -> Served:
    return Served(module, min_version, max_version, min_version if advertised_min is None else advertised_min)


SERVED: dict[int, Served] = {
    # Advertised from 0, as Kafka 4 does: older librdkafka switches its codecs off otherwise. Versions 0 to 2 carry
    # the old message formats and are answered with UNSUPPORTED_VERSION.
    0: _api("produce", 3, 11, advertised_min=0),
    1: _api("fetch", 4, 17),
    2: _api("list_offsets", 0, 9),
    3: _api("metadata", 0, 12),
    8: _api("offset_commit", 1, 9),
    9: _api("offset_fetch", 1, 9),
    10: _api("find_coordinator", 0, 6),
    11: _api("join_group", 0, 9),
    12: _api("heartbeat", 0, 4),
    13: _api("leave_group", 0, 5),
    14: _api("sync_group", 0, 5),
    15: _api("describe_groups", 0, 5),
    16: _api("list_groups", 0, 5),
    18: _api("api_versions", 0, 4),
    19: _api("create_topics", 0, 7),
    20: _api("delete_topics", 0, 6),
    21: _api("delete_records", 0, 2),
    22: _api("init_producer_id", 0, 5),
    23: _api("offset_for_leader_epoch", 0, 4),
    32: _api("describe_configs", 0, 4),
    33: _api("alter_configs", 0, 2),
    35: _api("describe_log_dirs", 0, 4),
    37: _api("create_partitions", 0, 3),
    42: _api("delete_groups", 0, 2),
    44: _api("incremental_alter_configs", 0, 1),
    47: _api("offset_delete", 0, 0),
    60: _api("describe_cluster", 0, 1),
    61: _api("describe_producers", 0, 0),
    75: _api("describe_topic_partitions", 0, 0),
}
