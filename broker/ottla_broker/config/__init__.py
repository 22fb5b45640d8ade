"""Every configuration key of brokers and topics, declared once, and the values in force.

A key has its name, type, default, check and meaning in one line of ``server_keys.py``, ``log_keys.py``,
``cluster_keys.py``, ``group_keys.py``, ``limit_keys.py`` or ``topics.py``; ``docs.py`` makes docs/configuration.md of
them. ``broker.py`` reads and checks a broker's, ``topics.py`` a topic's.

To change

- a config key: meaning, default, values: its line in ``config/server_keys.py``, ``config/log_keys.py``,
  ``config/cluster_keys.py``, ``config/group_keys.py`` or ``config/topics.py``; a test in tests/config says how to
  renew the page
- where a config key is refused or warned about: ``config/broker.py`` ``BrokerConfig`` ``_apply`` (bad and unsupported
  values), ``_unknown`` (a warning; names of listeners and providers of configs are refused),
  ``_check_listener_settings``, ``_check_cluster``, ``_check_exposure``, ``_check_together``; at runtime
  ``controller/config_admin.py`` ``check_broker``, which asks ``config/broker.py`` ``check_dynamic``; a topic's
  ``config/topics.py`` ``check_topic_configs``, a group's ``config/group_configs.py``; keys that are refused or have
  no effect are listed in ``config/unsupported_keys.py``, ``config/ignored_keys.py``
- how passwords set at runtime are stored: ``config/password_encoder.py`` ``PasswordEncoder``, from
  ``controller/stored_passwords.py`` ``StoredPasswords``
"""

from ottla_broker.config.broker import BrokerConfig, load_config
from ottla_broker.config.listeners import Endpoint
from ottla_broker.config.model import ConfigError, InvalidValue

__all__ = ["BrokerConfig", "ConfigError", "Endpoint", "InvalidValue", "load_config"]
