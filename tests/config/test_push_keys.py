"""``coordinator.listener``: which addresses are refused."""

from __future__ import annotations

import pytest

from ottla_broker.config import BrokerConfig
from ottla_broker.config.model import ConfigError


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {f"coordinator.{name.replace('_', '.')}": text for name, text in settings.items()}
        | {"allow.anonymous.network": "coordinator"}
    )


def test_a_listener_for_other_machines_needs_consent() -> None:
    with pytest.raises(ConfigError, match=r"coordinator\.listener: .* open to the network"):
        BrokerConfig.from_properties({"coordinator.listener": "10.0.0.1:9094"})
    assert "coordinator.listener" in config(listener="10.0.0.1:9094").warnings[0]
    assert BrokerConfig.from_properties({"coordinator.listener": "9094"}).warnings == []


def test_consumers_need_an_address_to_connect_to() -> None:
    with pytest.raises(ConfigError, match=r"coordinator\.advertised\.listener: is needed"):
        config(listener="0.0.0.0:9094")
    config(listener="0.0.0.0:9094", advertised_listener="broker.example:9094")
    with pytest.raises(ConfigError, match="HOST:PORT"):
        config(listener="broker")
