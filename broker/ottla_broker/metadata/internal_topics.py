"""The topics that brokers keep their own state in (Kafka's ``Topic.INTERNAL_TOPICS``)."""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC})
