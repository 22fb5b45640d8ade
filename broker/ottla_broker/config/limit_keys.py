"""Keys that limit what clients may have a broker remember. They are Ottla's own: Kafka has no such limits."""

from __future__ import annotations

from typing import Final

from ottla_broker.config.model import at_least, integer, long

_OWN: Final = "Kafka has no such key, and no limit."


class LimitKeys:
    """Keys that limit what clients have the broker remember."""

    max_groups = integer(
        100_000,
        "The most groups of a broker. A client that would create a further one gets GROUP_MAX_SIZE_REACHED.",
        at_least(1),
        note=_OWN,
    )
    max_pending_members = integer(
        20_000,
        "The most member ids that a broker has given out and that no member uses yet (KIP-394). For a further one the"
        " oldest is dropped.",
        at_least(1),
        note=_OWN,
    )
    max_group_metadata_bytes = long(
        256 * 1024 * 1024,
        "The most bytes that the members of all groups of a broker may state: metadata, subscriptions, names, and 1 KiB"
        " for each. Members with up to 16 KiB have as much again for themselves. One group may have half. The offsets"
        " of an open transaction count as a member. Without room for it, either gets GROUP_MAX_SIZE_REACHED.",
        at_least(1),
        note=_OWN,
    )
    max_share_group_states = integer(
        250_000,
        "The most share partitions (a group and a partition) whose state a broker keeps as share coordinator. The"
        " members of a group get no partition for which there is no room.",
        at_least(1),
        note=_OWN,
    )
    max_transactional_ids = integer(
        250_000,
        "The most transactional ids of a broker. A producer with a further one gets POLICY_VIOLATION, until ids expire:"
        " `transactional.id.expiration.ms`.",
        at_least(1),
        note=_OWN,
    )
    max_producers_per_partition = integer(
        20_000,
        "The most idempotent producers that a partition remembers. For a further one it forgets the tenth of them that"
        " wrote longest ago and have no open transaction: a batch that one of those sends again may be appended twice.",
        at_least(100),
        note=_OWN,
    )
    max_producers = integer(
        1_000_000,
        "The most idempotent producers that all partitions of a broker remember. For further ones, those with the most"
        " forget half of theirs, the ones that wrote longest ago and have no open transaction.",
        at_least(1_000),
        note=_OWN,
    )
    max_delegation_tokens = integer(
        50_000,
        "The most delegation tokens of a cluster. A client that would create a further one gets POLICY_VIOLATION, until"
        " tokens expire: `delegation.token.max.lifetime.ms`. With their names they have at most 640 bytes each, on"
        " average.",
        at_least(1),
        note=_OWN,
    )
    max_delegation_tokens_per_owner = integer(
        5_000,
        "The most delegation tokens of one owner; otherwise like `max.delegation.tokens`.",
        at_least(1),
        note=_OWN,
    )
