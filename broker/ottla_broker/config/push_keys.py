"""Keys of the consumer coordinator designed in 2012, which Kafka never had."""

from __future__ import annotations

from typing import Final

from ottla_broker.config.metrics_keys import check_address
from ottla_broker.config.model import Validator, at_least, between, integer, string

_OWN: Final = "Kafka has no such key."
_ADDRESS: Final = Validator(check_address, "HOST:PORT, a port, or empty")


class PushKeys:
    """``coordinator.listener`` and what it serves."""

    coordinator_listener = string(
        "",
        "The address at which consumers of the coordinator designed in 2012 register, such as 127.0.0.1:9094. A port"
        " alone means 127.0.0.1; empty serves none. Connections are plain text without login.",
        _ADDRESS,
        note=_OWN,
    )
    coordinator_advertised_listener = string(
        "",
        "The address of coordinator.listener for consumers, if it differs. Needed where the listener is 0.0.0.0.",
        _ADDRESS,
        note=_OWN,
    )
    coordinator_rebalance_threads = integer(
        8,
        "Rebalancing handlers: how many groups the coordinator rebalances at once.",
        between(1, 1000),
        note=_OWN,
    )
    coordinator_rebalance_max_retries = integer(
        4,
        "How often a rebalance is tried again before consumers that don't answer are removed from their group.",
        at_least(0),
        note=_OWN,
    )
    coordinator_rebalance_backoff_ms = integer(
        2_000, "The pause before a rebalance is tried again.", at_least(1), note=_OWN
    )
    coordinator_min_session_timeout_ms = integer(
        6_000, "The shortest session timeout that a consumer may register with.", at_least(100), note=_OWN
    )
    coordinator_max_failed_pings = integer(
        0,
        "How many pings in a row a consumer may leave unanswered. With 0, a consumer that is silent for its session"
        " timeout is removed; each further ping takes two thirds of the session timeout more.",
        at_least(0),
        note=_OWN,
    )
    coordinator_offset_commit_interval_ms = integer(
        10_000,
        "How often the coordinator stores the offsets that its consumers report.",
        at_least(1),
        note=_OWN,
    )
    coordinator_max_consumers = integer(
        10_000, "The most consumers that may be registered with the coordinator.", at_least(1), note=_OWN
    )
