"""The broker's settings that the transaction coordinator uses."""

from __future__ import annotations

from typing import NamedTuple

from ottla_broker.config import BrokerConfig


class TransactionSettings(NamedTuple):
    """Times are in ms; the defaults are Kafka 3.9's."""

    id_expiration_ms: int = 7 * 24 * 60 * 60_000
    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    """Time between two checks for transactions whose time is up."""
    expiry_interval_ms: int = 3_600_000
    """Time between two checks for ids that are no longer used."""
    topic_partitions: int = 50
    max_ids: int = 250_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            id_expiration_ms=config.transactional_id_expiration_ms,
            max_timeout_ms=config.transaction_max_timeout_ms,
            abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            topic_partitions=config.transaction_state_log_num_partitions,
            max_ids=config.max_transactional_ids,
        )
