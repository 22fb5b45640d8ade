"""Every configuration key of the broker and of topics, declared once, and the values that are in force."""

from ottla_broker.config.broker import BrokerConfig, load_config
from ottla_broker.config.listeners import Endpoint
from ottla_broker.config.model import ConfigError, InvalidValue

__all__ = ["BrokerConfig", "ConfigError", "Endpoint", "InvalidValue", "load_config"]
