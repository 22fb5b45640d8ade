"""Keys of delegation tokens (KIP-48)."""

from __future__ import annotations

from ottla_broker.config.model import PASSWORD, Key, at_least, long


class DelegationTokenKeys:
    """Keys of delegation tokens: whether there are any, and how long they last."""

    delegation_token_secret_key: Key[str | None] = Key(
        PASSWORD,
        None,
        "The secret that delegation tokens are made with, the same on all brokers. Without it there are none.",
    )
    delegation_token_master_key: Key[str | None] = Key(
        PASSWORD, None, "The older name of delegation.token.secret.key."
    )
    delegation_token_max_lifetime_ms = long(
        604_800_000, "The longest lifetime of a delegation token.", at_least(1)
    )
    delegation_token_expiry_time_ms = long(
        86_400_000, "The lifetime of a delegation token that isn't renewed.", at_least(1)
    )
    delegation_token_expiry_check_interval_ms = long(
        3_600_000, "Time between two removals of expired delegation tokens.", at_least(1)
    )
