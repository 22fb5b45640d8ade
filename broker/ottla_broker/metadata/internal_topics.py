"""The topics that brokers keep their own state in (Kafka's ``Topic.INTERNAL_TOPICS``)."""

from __future__ import annotations

from typing import Final

from ottla_protocol.partitioning import LAG_TOPIC

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC, LAG_TOPIC})
"""No client writes them: coordinators write where they lead the partition, and a broker that samples groups' lag sends
its samples to the leader."""
