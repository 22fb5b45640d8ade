"""The broker's configuration: the settings given, the values in force, and warnings for the operator."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla_broker.config import exposure
from ottla_broker.config.authorization_keys import AuthorizationKeys, parse_principals
from ottla_broker.config.cluster_keys import ClusterKeys
from ottla_broker.config.delegation_keys import DelegationTokenKeys
from ottla_broker.config.environment import PREFIX, read_environment
from ottla_broker.config.group_keys import GroupKeys, check_consumer_times, check_times
from ottla_broker.config.limit_keys import LimitKeys
from ottla_broker.config.listener_settings import LIMITS, full_name, listener_setting
from ottla_broker.config.listener_settings import PREFIX as LISTENER_PREFIX
from ottla_broker.config.listener_settings import unknown as unknown_of_listener
from ottla_broker.config.listeners import Endpoint, ListenerError, parse_endpoints
from ottla_broker.config.log_keys import LogKeys, TopicDefaultKeys
from ottla_broker.config.metrics_keys import MetricsKeys
from ottla_broker.config.model import (
    HIDDEN,
    IGNORED,
    INT_MAX,
    READ_ONLY,
    UNSUPPORTED,
    ConfigError,
    InvalidValue,
    Key,
    format_value,
    keys_of,
    nearest,
)
from ottla_broker.config.oauth_keys import UNSECURED_TOKENS, OAuthKeys
from ottla_broker.config.password_keys import PasswordKeys
from ottla_broker.config.properties import read_properties
from ottla_broker.config.push_keys import PushKeys
from ottla_broker.config.quota_keys import QuotaKeys
from ottla_broker.config.sasl import check_logins, check_sasl
from ottla_broker.config.security_keys import SaslKeys, TlsKeys
from ottla_broker.config.server_keys import NetworkKeys, ServerKeys
from ottla_broker.config.share_keys import SHARE_TIMES, ShareKeys
from ottla_broker.config.transaction_keys import TransactionKeys
from ottla_broker.events import get_logger
from ottla_protocol.prometheus import parse_address
from ottla_protocol.sasl.mechanism import OAUTHBEARER

if TYPE_CHECKING:
    from ottla_broker.log.user_retention import PolicySettings

T = TypeVar("T")

_log = get_logger()

CONNECTION_LIMITS: Final = (NetworkKeys.max_connections_per_ip, NetworkKeys.max_connections_per_ip_overrides)
"""What decides together whether any address may connect."""

_DEFAULT_SOURCE = "configuration"
_POLICIES = "ottla.retention.policy."


@cache
def all_keys() -> Mapping[str, Key[Any]]:
    """Return every key of Kafka 3.9 by name, including keys without effect here."""
    from ottla_broker.config.other_keys import other_keys

    return dict(sorted({**keys_of(BrokerConfig), **other_keys()}.items()))


def key_of(name: str) -> Key[Any] | None:
    """The key of a setting, also of a single listener's; None if there is none."""
    found = listener_setting(name)
    return all_keys().get(name) if found is None else found.key


def shown_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for the log, without passwords."""
    return {
        name: HIDDEN if (key := key_of(name)) is not None and key.sensitive else text
        for name, text in settings.items()
    }


class BrokerConfig(
    ServerKeys,
    NetworkKeys,
    TlsKeys,
    SaslKeys,
    OAuthKeys,
    DelegationTokenKeys,
    PasswordKeys,
    TopicDefaultKeys,
    LogKeys,
    GroupKeys,
    ShareKeys,
    TransactionKeys,
    AuthorizationKeys,
    QuotaKeys,
    LimitKeys,
    ClusterKeys,
    MetricsKeys,
    PushKeys,
):
    """The values in force, with one attribute per supported key: ``config.num_network_threads``.

    Owned by the loop thread. Only :meth:`apply_dynamic` changes the attributes. Read a dynamic key at each use, so that
    a change takes effect at once.

    Attributes:
        endpoints: the parsed listeners.
        data_dirs: the data folders; the first one also holds the embedded store.
        super_principals: the parsed ``super.users``.
        connection_limits: the parsed ``max.connections.per.ip.overrides``.
        retention_policies: the parsed ``ottla.retention.policy.…``.
        warnings: one line each, to log at start.
        static: the settings given at start, as text by key.
        dynamic_default, dynamic_broker: the settings made at runtime, for the cluster and for this broker.
        reconfigurable: called with this broker's checked settings before they are stored; each raises InvalidValue if
            they can't come into force.
    """

    endpoints: tuple[Endpoint, ...]
    data_dirs: tuple[Path, ...]
    super_principals: frozenset[str]
    connection_limits: dict[str, int]
    retention_policies: tuple[PolicySettings, ...] = ()

    def __init__(
        self,
        static: Mapping[str, str],
        sources: Mapping[str, str],
        hostname: Callable[[], str],
    ) -> None:
        self.static = dict(static)
        self.dynamic_default: dict[str, str] = {}
        self.dynamic_broker: dict[str, str] = {}
        self.reconfigurable: list[Callable[[Mapping[str, str]], None]] = []
        self.warnings: list[str] = []
        self._sources = sources
        for name, text in self.static.items():
            self._apply(name, text)
        self._set_retention_policies()
        self._set_identity()
        self._set_listeners(hostname)
        self._check_listener_settings()
        self._set_folders()
        self._check_cluster()
        self._check_exposure()
        self.super_principals = parse_principals(self.super_users)
        self.connection_limits = parse_overrides(self.max_connections_per_ip_overrides)
        self._check_together()

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        source: str = _DEFAULT_SOURCE,
        sources: Mapping[str, str] | None = None,
        hostname: Callable[[], str] = lambda: os.uname().nodename,
    ) -> BrokerConfig:
        """Make a configuration of keys and values.

        ``source``, or ``sources`` for each key, is the name of their origin in errors.

        Raises ConfigError: a setting is invalid; the message reads ``source: key: what is wrong and what to do``.
        """
        return cls(properties, sources or dict.fromkeys(properties, source), hostname)

    def get(self, name: str) -> Any:
        """Return the value in force of any known key. Raises KeyError if the key is unknown."""
        key = all_keys()[name]
        if key.attribute in self.__dict__:
            return self.__dict__[key.attribute]
        # A key without effect has no attribute, but shows the value that was given.
        text = self.static.get(name)
        return key.default if text is None else key.parse(text)

    def text(self, name: str) -> str | None:
        """Return the value in force of any known key, as Kafka writes it."""
        return format_value(all_keys()[name].kind, self.get(name))

    def of_listener(
        self, listener: str, key: Key[T], settings: Mapping[str, str] | None = None, mechanism: str = ""
    ) -> T:
        """Return a key's value for a listener: its mechanism's, its own, or that of all listeners.

        ``settings`` are used instead of those in force, see :meth:`settings_with`.
        """
        given = self._given_texts() if settings is None else settings
        text = given.get(full_name(listener, key), given.get(key.name))
        if mechanism:
            text = given.get(full_name(listener, key, mechanism), text)
        return key.default if text is None else key.parse(text)

    def limit_of_listener(self, listener: str, key: Key[int]) -> int:
        """Return a listener's own limit, which holds in addition to the broker's; ``INT_MAX`` for none."""
        text = self._given_texts().get(full_name(listener, key))
        return INT_MAX if text is None else int(key.parse(text))

    def settings_with(self, broker: Mapping[str, str]) -> dict[str, str]:
        """Return all settings as they would be with ``broker`` as this broker's settings made at runtime."""
        return {**self.static, **self.dynamic_default, **broker}

    def check_dynamic(self, changes: Mapping[str, str]) -> None:
        """Check settings to be made at runtime.

        Raises:
            InvalidValue: a key doesn't accept its value.
            ValueError: a key is unknown, or can't change at runtime; the message names it.
        """
        known = {name: key for name in changes if (key := key_of(name)) is not None}
        fixed = sorted(name for name, key in known.items() if key.mode == READ_ONLY)
        if fixed:
            raise ValueError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
        unknown = sorted(name for name in changes if name not in known)
        if unknown:
            raise ValueError(f"Unknown broker config name: {', '.join(unknown)}")
        bare = sorted(
            name
            for name, key in known.items()
            if key is SaslKeys.sasl_jaas_config
            and not ((found := listener_setting(name)) and found.mechanism)
        )
        if bare:
            raise ValueError(
                "These security configs can be dynamically updated only for one mechanism of a listener, as"
                f" listener.name.<listener>.<mechanism>.sasl.jaas.config: {', '.join(bare)}"
            )
        for name, text in changes.items():
            key = known[name]
            value = key.parse(text)
            if key.effect == UNSUPPORTED and key.is_requested(value):
                raise InvalidValue(name, text, key.note)
            if key in LIMITS and value == 0:  # else no client could connect to change it back
                raise InvalidValue(name, text, "Value must be at least 1")
        self._check_retention({**self._given_texts(), **changes})

    def check_reconfiguration(self, broker: Mapping[str, str]) -> None:
        """Check that this broker's settings, which :meth:`check_dynamic` allows, can come into force together.

        Raises InvalidValue: they can't, because a file can't be read, for example.
        """
        settings = self.settings_with(broker)
        check_logins(self, bool(self.zookeeper_connect), settings)
        for check in self.reconfigurable:
            check(settings)

    def apply_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Put checked runtime settings into force: those for all brokers, and those for this one.

        Limits of connections that would let no address connect stay out of force: another broker, whose own settings
        allow them, may have accepted them for all brokers.
        """
        before = self.dynamic_default.keys() | self.dynamic_broker.keys()
        self.dynamic_default = dict(default)
        self.dynamic_broker = dict(broker)
        keys = keys_of(BrokerConfig)
        given = self._given_texts()
        try:
            self.check_connection_limits(given)
        except InvalidValue as error:
            _log.error("runtime settings are not in force", reason=str(error))
            for name in (each.name for each in CONNECTION_LIMITS):
                given.pop(name, None)
                if name in self.static:
                    given[name] = self.static[name]
        for name in before | default.keys() | broker.keys():
            key = keys.get(name)
            if key is None:
                continue
            if name in given:
                self.__dict__[key.attribute] = key.parse(given[name])
            else:
                self.__dict__.pop(key.attribute, None)
        self.connection_limits = parse_overrides(self.max_connections_per_ip_overrides)

    def is_given(self, name: str) -> bool:
        """Whether a key has been set, be it to its default."""
        return name in self.static or name in self.dynamic_default or name in self.dynamic_broker

    def _given_texts(self) -> dict[str, str]:
        return {**self.static, **self.dynamic_default, **self.dynamic_broker}

    def _error(self, name: str, what: str) -> ConfigError:
        return ConfigError(f"{self._sources.get(name, _DEFAULT_SOURCE)}: {name}: {what}")

    def _apply(self, name: str, text: str) -> None:
        key: Any = keys_of(BrokerConfig).get(name) or all_keys().get(name)
        if key is None:
            if not name.startswith(_POLICIES):
                self._unknown(name)
            return
        try:
            value = key.parse(text)
        except InvalidValue as error:
            described = "" if key.validator is None else key.validator.describe
            is_said = described.removeprefix("list of ") in error.reason
            allowed = "" if is_said else f"; allowed: {described}"
            shown = "the value" if key.sensitive else repr(text)
            raise self._error(name, f"{shown} is not allowed ({error.reason}){allowed}") from error
        if key.effect == UNSUPPORTED and key.is_requested(value):
            raise self._error(name, f"{key.note} Remove the key.")
        if key.effect == IGNORED and key.is_requested(value):
            self.warnings.append(f"{name}={text} has no effect: {key.note}")
        if key.effect not in (UNSUPPORTED, IGNORED):
            self.__dict__[key.attribute] = value

    def _unknown(self, name: str) -> None:
        if name.startswith(LISTENER_PREFIX):
            return  # checked once the listeners are known
        if name.startswith("config.providers"):
            raise self._error(name, "config providers are not built yet; write the values directly")
        like = nearest(name, all_keys())
        self.warnings.append(f"{name} is not a known key" + (f"; did you mean {like}?" if like else ""))

    def _set_retention_policies(self) -> None:
        if any(name.startswith(_POLICIES) for name in self.static):
            # Rarely needed, so it isn't imported at every start.
            from ottla_broker.config.retention_policies import parse_policies

            self.retention_policies = parse_policies(self.static, self._error)

    def _set_identity(self) -> None:
        """Take the broker id from ``broker.id`` or ``node.id``, or choose one."""
        given = [self.static.get(name) for name in ("broker.id", "node.id")]
        if given[0] is not None and given[1] is not None and self.broker_id != self.node_id:
            raise self._error(
                "node.id", f"is {self.node_id} while broker.id is {self.broker_id}; set only one of them"
            )
        broker_id = self.broker_id if given[1] is None else self.node_id
        name = "broker.id" if given[1] is None else "node.id"
        # Ids are chosen above the reserved ones.
        generates = self.broker_id_generation_enable
        if broker_id < -1 or (generates and broker_id > self.reserved_broker_max_id):
            raise self._error(
                name,
                f"{broker_id} is not between -1 and reserved.broker.max.id ({self.reserved_broker_max_id})",
            )
        self.broker_id_given = broker_id >= 0
        if broker_id < 0:
            if not self.broker_id_generation_enable:
                raise self._error(
                    name, "is missing, and broker.id.generation.enable is false; set it to 0 or more"
                )
            broker_id = self.reserved_broker_max_id + 1
        self.use_broker_id(broker_id)

    def use_broker_id(self, broker_id: int) -> None:
        """Take the broker id of the data folder, when the settings give none."""
        self.__dict__["broker_id"] = self.__dict__["node_id"] = broker_id

    def _set_listeners(self, hostname: Callable[[], str]) -> None:
        try:
            self.endpoints = parse_endpoints(
                self.listeners,
                self.advertised_listeners,
                self.listener_security_protocol_map,
                self.inter_broker_listener_name,
                hostname,
            )
        except ListenerError as error:
            raise self._error(error.key, error.reason) from error
        protocol = self.security_inter_broker_protocol
        if "security.inter.broker.protocol" not in self.static:
            return
        if self.inter_broker_listener_name is not None:
            raise self._error(
                "security.inter.broker.protocol",
                "only one of it and inter.broker.listener.name can be set; remove one",
            )
        if protocol not in (endpoint.name for endpoint in self.endpoints):
            raise self._error(
                "security.inter.broker.protocol",
                f"there is no listener named {protocol}; add one, or set inter.broker.listener.name instead",
            )

    @property
    def inter_broker_endpoint(self) -> Endpoint:
        """The listener for other brokers; without settings, the one named PLAINTEXT or the first."""
        wanted = self.inter_broker_listener_name or self.security_inter_broker_protocol
        named = [endpoint for endpoint in self.endpoints if endpoint.name == wanted.upper()]
        return (named or self.endpoints)[0]

    def _check_listener_settings(self) -> None:
        names = {endpoint.name.lower() for endpoint in self.endpoints}
        for name, text in self.static.items():
            if not name.startswith(LISTENER_PREFIX):
                continue
            found = listener_setting(name)
            if found is None:
                raise self._error(name, unknown_of_listener(name))
            try:
                found.key.parse(text)
            except InvalidValue as error:
                shown = "the value" if found.key.sensitive else repr(text)
                raise self._error(name, f"{shown} is not allowed ({error.reason})") from error
            if found.listener not in names:
                self.warnings.append(f"{name} has no effect: there is no listener {found.listener.upper()}")
        check_sasl(self, bool(self.zookeeper_connect), self._error)

    def _check_exposure(self) -> None:
        """Refuse listeners that are open to the network without a login, or warn of them if they are allowed."""
        allowed = self.allow_anonymous_network
        wrong = exposure.unknown_name(self.endpoints, allowed)
        if wrong is not None:
            raise self._error(exposure.KEY, wrong)
        for found in exposure.exposures(
            self.endpoints, self._authenticates, self.metrics_listener, self.coordinator_listener
        ):
            if not exposure.is_allowed(found, allowed):
                raise self._error(found.key, exposure.refusal(found))
            self.warnings.append(exposure.warning(found))

    def _authenticates(self, endpoint: Endpoint) -> bool:
        """Whether the clients of a listener prove who they are; anyone can write tokens without signatures."""
        name = endpoint.name
        if not endpoint.uses_sasl:
            return endpoint.uses_tls and self.of_listener(name, TlsKeys.ssl_client_auth) == "required"
        if OAUTHBEARER not in self.of_listener(name, SaslKeys.sasl_enabled_mechanisms):
            return True
        validator = OAuthKeys.sasl_server_callback_handler_class
        return self.of_listener(name, validator, mechanism=OAUTHBEARER) != UNSECURED_TOKENS

    def _set_folders(self) -> None:
        text = self.log_dirs if self.log_dirs is not None else self.log_dir
        folders = tuple(dict.fromkeys(Path(part.strip()) for part in text.split(",") if part.strip()))
        if not folders:
            raise self._error("log.dirs", "names no folder; name at least one")
        self.data_dirs = folders

    def _check_cluster(self) -> None:
        """Check the cluster's keys, or warn of them without ``zookeeper.connect``; empty counts as unset."""
        if self.zookeeper_connect:
            # Imported here because it loads ssl, which a standalone broker doesn't need.
            from ottla_broker.config.zookeeper import check_zookeeper

            self.warnings += check_zookeeper(self, self.static, self._error)
            return
        self.__dict__.pop("zookeeper_connect", None)
        keys = keys_of(ClusterKeys)
        for name, text in self.static.items():
            key = keys.get(name)
            if key is not None and key.is_requested(self.__dict__.get(key.attribute, key.default)):
                shown = name if key.sensitive else f"{name}={text}"
                self.warnings.append(
                    f"{shown} has no effect on a standalone broker (without zookeeper.connect)"
                )

    def _check_together(self) -> None:
        """Check keys against each other, as Kafka does."""
        if not self.authorizer_class_name:
            for name in ("super.users", "allow.everyone.if.no.acl.found", "ottla.audit.log"):
                if name in self.static:
                    self.warnings.append(f"{name} has no effect without authorizer.class.name")
        if self.coordinator_listener:
            address = parse_address(self.coordinator_advertised_listener or self.coordinator_listener)
            if address is not None and address[0] in ("0.0.0.0", "::"):
                raise self._error(
                    "coordinator.advertised.listener",
                    f"is needed, because consumers can't connect to {address[0]}; set a routable HOST:PORT",
                )
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise self._error(
                "queued.max.request.bytes",
                f"must be at least socket.request.max.bytes ({self.socket_request_max_bytes}), or -1",
            )
        delay = self.connection_failed_authentication_delay_ms
        if 0 <= self.connections_max_idle_ms <= delay:
            raise self._error(
                "connections.max.idle.ms",
                f"must be more than connection.failed.authentication.delay.ms ({delay}), or -1",
            )
        if self.log_cleaner_dedupe_buffer_size // self.log_cleaner_threads <= 1 << 20:
            raise self._error(
                "log.cleaner.dedupe.buffer.size", "must be more than 1 MiB for each cleaner thread"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise self._error(
                "group.min.session.timeout.ms",
                f"must not be more than group.max.session.timeout.ms ({self.group_max_session_timeout_ms})",
            )
        wrong = check_consumer_times(self) or check_times(self, "share", SHARE_TIMES)
        if wrong is not None:
            raise self._error(*wrong)
        try:
            self._check_retention(self.static)
            self.check_connection_limits(self.static)
        except InvalidValue as error:
            raise self._error(error.name, error.reason) from error
        for name, factor, topic in (
            ("offsets.topic.replication.factor", self.offsets_topic_replication_factor, "offsets"),
            (
                "transaction.state.log.replication.factor",
                self.transaction_state_log_replication_factor,
                "transaction",
            ),
        ):
            if name in self.static and factor > 1 and self.zookeeper_connect is None:
                self.warnings.append(
                    f"{name}={factor} is more than the number of brokers: the {topic} topic gets one replica"
                )
        if self.default_replication_factor > 1 and self.zookeeper_connect is None:
            self.warnings.append(
                f"default.replication.factor={self.default_replication_factor} is more than the number of brokers:"
                " a topic can be created only with a replication factor of its own; set it to 1"
            )

    @staticmethod
    def check_connection_limits(given: Mapping[str, str]) -> None:
        """Check that the limits of connections let at least one address connect. Raises InvalidValue."""
        most, overrides = CONNECTION_LIMITS
        allowed = overrides.parse(given.get(overrides.name, ""))
        if most.name in given and most.parse(given[most.name]) == 0 and not allowed:
            raise InvalidValue(most.name, 0, f"may be 0 only if {overrides.name} allows some address")

    @staticmethod
    def _check_retention(given: Mapping[str, str]) -> None:
        """Check that retention is unlimited (below 0) or positive, in the key that counts."""
        keys = keys_of(TopicDefaultKeys)
        for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
            if name in given:
                value = keys[name].parse(given[name])
                if value == 0:
                    raise InvalidValue(name, value, "Value must be -1 (unlimited) or at least 1")
                return


def load_config(
    path: Path | None,
    overrides: Mapping[str, str],
    defaults: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Read a ``server.properties`` file; the environment overrides it, and ``overrides`` override both.

    ``defaults`` replace Kafka's defaults.

    Raises ConfigError: the file can't be read, or a setting is invalid.
    """
    properties = read_properties(path) if path is not None else {}
    sources = dict.fromkeys(properties, str(path))
    warnings: list[str] = []
    if environ is not None and any(name.startswith(PREFIX) for name in environ):
        found = read_environment(environ, all_keys())
        properties = {**properties, **found.settings}
        sources.update({key: f"environment ({name})" for key, name in found.variables.items()})
        warnings = found.warnings
    sources.update(dict.fromkeys(overrides, "command line"))
    config = BrokerConfig.from_properties({**(defaults or {}), **properties, **overrides}, sources=sources)
    config.warnings += warnings
    return config


def parse_overrides(text: str) -> dict[str, int]:
    """Parse a checked ``host:count,…``."""
    limits = {}
    for part in text.split(",") if text else ():
        host, _, count = part.rpartition(":")
        limits[host.strip()] = int(count)
    return limits
