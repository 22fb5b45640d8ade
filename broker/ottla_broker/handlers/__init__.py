"""The APIs that the broker serves: one module per API, each with ``handle(ctx, request)``.

A handler that may take long is a generator, whose steps take turns with other requests.

The tables below are the only place that says which APIs and versions are served; ApiVersions answers from them.
"""

from __future__ import annotations

from typing import NamedTuple


class Served(NamedTuple):
    """One API: the module of its handler, and the versions that are advertised and served.

    Attributes:
        coordinated: its handler needs a coordinator, which a broker that stands alone loads with the first of them.
    """

    module: str
    min_version: int
    max_version: int
    coordinated: bool = False


SERVED: dict[int, Served] = {
    0: Served("produce", 0, 12),
    1: Served("fetch", 0, 17),
    2: Served("list_offsets", 0, 9),
    3: Served("metadata", 0, 12),
    8: Served("offset_commit", 0, 9, coordinated=True),
    9: Served("offset_fetch", 0, 9, coordinated=True),
    10: Served("find_coordinator", 0, 6, coordinated=True),
    11: Served("join_group", 0, 9, coordinated=True),
    12: Served("heartbeat", 0, 4, coordinated=True),
    13: Served("leave_group", 0, 5, coordinated=True),
    14: Served("sync_group", 0, 5, coordinated=True),
    15: Served("describe_groups", 0, 5, coordinated=True),
    16: Served("list_groups", 0, 5, coordinated=True),
    17: Served("sasl_handshake", 0, 1),
    18: Served("api_versions", 0, 4),
    19: Served("create_topics", 0, 7),
    20: Served("delete_topics", 0, 6),
    21: Served("delete_records", 0, 2),
    22: Served("init_producer_id", 0, 5, coordinated=True),
    23: Served("offset_for_leader_epoch", 0, 4),
    24: Served("add_partitions_to_txn", 0, 5, coordinated=True),
    25: Served("add_offsets_to_txn", 0, 4, coordinated=True),
    26: Served("end_txn", 0, 5, coordinated=True),
    27: Served("write_txn_markers", 0, 1, coordinated=True),
    28: Served("txn_offset_commit", 0, 5, coordinated=True),
    29: Served("describe_acls", 0, 3),
    30: Served("create_acls", 0, 3),
    31: Served("delete_acls", 0, 3),
    32: Served("describe_configs", 0, 4),
    33: Served("alter_configs", 0, 2),
    34: Served("alter_replica_log_dirs", 0, 2),
    35: Served("describe_log_dirs", 0, 4),
    36: Served("sasl_authenticate", 0, 2),
    37: Served("create_partitions", 0, 3),
    38: Served("create_delegation_token", 0, 3),
    39: Served("renew_delegation_token", 0, 2),
    40: Served("expire_delegation_token", 0, 2),
    41: Served("describe_delegation_token", 0, 3),
    42: Served("delete_groups", 0, 2, coordinated=True),
    43: Served("elect_leaders", 0, 2),
    44: Served("incremental_alter_configs", 0, 1),
    45: Served("alter_partition_reassignments", 0, 0),
    46: Served("list_partition_reassignments", 0, 0),
    47: Served("offset_delete", 0, 0, coordinated=True),
    48: Served("describe_client_quotas", 0, 1),
    49: Served("alter_client_quotas", 0, 1),
    50: Served("describe_user_scram_credentials", 0, 0),
    51: Served("alter_user_scram_credentials", 0, 0),
    57: Served("update_features", 0, 1),
    60: Served("describe_cluster", 0, 1),
    61: Served("describe_producers", 0, 0),
    65: Served("describe_transactions", 0, 0, coordinated=True),
    66: Served("list_transactions", 0, 1, coordinated=True),
    68: Served("consumer_group_heartbeat", 0, 1, coordinated=True),
    69: Served("consumer_group_describe", 0, 1, coordinated=True),
    71: Served("get_telemetry_subscriptions", 0, 0),
    72: Served("push_telemetry", 0, 0),
    74: Served("list_client_metrics_resources", 0, 0),
    75: Served("describe_topic_partitions", 0, 0),
    76: Served("share_group_heartbeat", 1, 1, coordinated=True),
    77: Served("share_group_describe", 1, 1, coordinated=True),
    78: Served("share_fetch", 1, 2, coordinated=True),
    79: Served("share_acknowledge", 1, 2, coordinated=True),
    90: Served("describe_share_group_offsets", 0, 1, coordinated=True),
    91: Served("alter_share_group_offsets", 0, 0, coordinated=True),
    92: Served("delete_share_group_offsets", 0, 0, coordinated=True),
}

IN_CLUSTERS: dict[int, Served] = {
    4: Served("leader_and_isr", 0, 7),
    5: Served("stop_replica", 0, 4),
    6: Served("update_metadata", 0, 8),
    7: Served("controlled_shutdown", 0, 3),
    56: Served("alter_partition", 0, 3),
    67: Served("allocate_producer_ids", 0, 0),
    83: Served("initialize_share_group_state", 0, 0),
    84: Served("read_share_group_state", 0, 0),
    85: Served("write_share_group_state", 0, 1),
    86: Served("delete_share_group_state", 0, 0),
    87: Served("read_share_group_state_summary", 0, 1),
}
"""Requests between brokers, which a broker in a cluster serves as well."""

BETWEEN_BROKERS = frozenset(IN_CLUSTERS) | {27}
"""Requests between brokers, with WriteTxnMarkers, which tools send too. No quota slows them down (Kafka's
``ApiKeys.clusterAction``)."""


CONSUMER_PROTOCOL = frozenset({68, 69})
"""The APIs of groups of the consumer protocol, which ``group.coordinator.rebalance.protocols`` can leave out."""


SHARE_GROUPS = frozenset({76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92})
"""The APIs of share groups, which ``group.share.enable`` can leave out."""


CLIENT_TELEMETRY = frozenset({71, 72})
"""The APIs by which clients push their metrics, which a broker serves that shows them (``metrics.listener``)."""


def served_apis(
    *,
    in_cluster: bool,
    consumer_protocol: bool = True,
    share_groups: bool = True,
    client_telemetry: bool = False,
) -> dict[int, Served]:
    """The APIs of a broker that stands alone or is in a cluster."""
    served = {**SERVED, **IN_CLUSTERS} if in_cluster else SERVED
    left_out: frozenset[int] = frozenset()
    if not consumer_protocol:
        left_out |= CONSUMER_PROTOCOL
    if not client_telemetry:
        left_out |= CLIENT_TELEMETRY
    if not share_groups:
        left_out |= SHARE_GROUPS
    return {key: each for key, each in served.items() if key not in left_out}
