"""Every configuration key of brokers and topics, declared once, and the values in force."""

from ottla_broker.config.broker import BrokerConfig, load_config
from ottla_broker.config.listeners import Endpoint
from ottla_broker.config.model import ConfigError, InvalidValue

__all__ = ["BrokerConfig", "ConfigError", "Endpoint", "InvalidValue", "load_config"]
