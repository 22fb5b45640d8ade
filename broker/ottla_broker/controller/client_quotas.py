"""Quotas of clients in the store: reading, changing and describing them (KIP-546).

They are settings of entities in Kafka's nodes: ``/config/users/U``, ``/config/clients/C``,
``/config/users/U/clients/C`` and ``/config/ips/A``. Kafka's ``ZkAdminManager``; errors have its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from math import isfinite
from typing import Final, NamedTuple, Protocol

from ottla_broker.controller.api import Outcome
from ottla_broker.events import get_logger
from ottla_broker.metadata.client_quotas import ClientQuotas, QuotaEntity, QuotaKind, desanitize, sanitize
from ottla_broker.store.api import NodeExistsError, NoNodeError, Store, StoreError, children_of
from ottla_broker.store.keys import DEFAULT_ENTITY, BadNodeError, ConfigNode
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
CONNECTION_RATE: Final = "connection_creation_rate"

_WHOLE: Final = frozenset({QuotaKind.PRODUCE.value, QuotaKind.FETCH.value, CONNECTION_RATE})
"""Settings whose values are whole numbers."""
_OF_CLIENTS: Final = frozenset(kind.value for kind in QuotaKind)
_OF_IPS: Final = frozenset({CONNECTION_RATE})
_EPSILON: Final = 1e-6
MOST_ENTITIES: Final = 100_000
"""The entities that may have quotas; one counts as another for every 256 characters of its names."""
_CHARACTERS: Final = 256


class Entity(NamedTuple):
    """The kind and name of an entity's node."""

    kind: str
    name: str

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """Types and names as in requests; null for the default."""
        if self.kind == USERS:
            user, _, client = self.name.partition("/clients/")
            return [(USER, _shown(user)), *([(CLIENT_ID, _shown(client))] if client else [])]
        return [(CLIENT_ID if self.kind == CLIENTS else IP, _shown(self.name))]

    @property
    def weight(self) -> int:
        """As how many entities it counts."""
        return 1 + len(self.name) // _CHARACTERS


def _shown(name: str) -> str | None:
    return None if name == DEFAULT_ENTITY else desanitize(name)


class Component(NamedTuple):
    """A part of a filter: an exact name (null for the default), or ``any_name``."""

    kind: str
    name: str | None
    any_name: bool = False


class Change(NamedTuple):
    """One operation on one quota; None removes it."""

    key: str
    value: float | None


class Configs(Protocol):
    """Reads and writes settings of entities; a write notifies the other brokers, if there are any."""

    async def read(self, kind: str, name: str) -> dict[str, str]: ...

    async def write(self, kind: str, name: str, settings: Mapping[str, str]) -> None: ...


class LocalConfigs:
    """Settings in the store of a broker alone."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, kind: str, name: str) -> dict[str, str]:
        path = ConfigNode.path(kind, name)
        try:
            data, _ = await self._store.get(path)
            return ConfigNode.decode(path, data)
        except NoNodeError:
            return {}
        except BadNodeError as error:
            _log.error("settings can't be read and are ignored", reason=str(error))
            return {}

    async def write(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        path, data = ConfigNode.path(kind, name), ConfigNode.encode(settings)
        try:
            await self._store.create(path, data, parents=True)
        except NodeExistsError:
            await self._store.set(path, data)


class QuotaAdmin:
    """Owned by the loop thread. :meth:`load` first; then :meth:`changed` for each entity that others have changed.

    Attributes:
        on_ip: called with an address, or ``<default>``, and its connections per second; None for no limit.
    """

    def __init__(
        self, store: Store, configs: Configs, quotas: ClientQuotas, most: int = MOST_ENTITIES
    ) -> None:
        """``most``: the entities that may have quotas."""
        self._store = store
        self._configs = configs
        self._quotas = quotas
        self._most = most
        self._found: dict[Entity, dict[str, float]] = {}
        self._weight = 0
        self.on_ip: Callable[[str, float | None], None] = lambda ip, rate: None

    async def load(self) -> None:
        """Read the quotas of all entities. Raises StoreError."""
        for kind in (USERS, CLIENTS, IPS):
            for name in await children_of(self._store, f"/config/{kind}"):
                await self.changed(kind, name)
                if kind == USERS:
                    for client in await children_of(self._store, f"/config/{kind}/{name}/clients"):
                        await self.changed(kind, f"{name}/clients/{client}")

    async def changed(self, kind: str, name: str) -> None:
        """Read an entity again. Raises StoreError."""
        if kind in (USERS, CLIENTS, IPS):
            self.apply(kind, name, await self._configs.read(kind, name))

    def apply(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        """Put an entity's settings in force; those that aren't quotas are not looked at."""
        entity = Entity(kind, name)
        known = _OF_IPS if kind == IPS else _OF_CLIENTS
        values: dict[str, float] = {}
        for key in known & settings.keys():
            try:
                values[key] = float(settings[key])
            except ValueError:
                node = ConfigNode.path(kind, name)
                _log.error(
                    "invalid setting ignored", node=node, reason=f"{key} is not a number: {settings[key]}"
                )
        before = self._found.get(entity, {})
        if values == before:
            return
        self._weight += entity.weight * (bool(values) - bool(before))
        if values:
            # Never changed: answers that are being made have it.
            self._found[entity] = values
        else:
            self._found.pop(entity, None)
        _log.info("quotas changed", entity=ConfigNode.path(kind, name), quotas=values)
        if kind == IPS:
            self.on_ip(_shown(name) or DEFAULT_ENTITY, values.get(CONNECTION_RATE))
        elif kind == CLIENTS:
            self._quotas.set(QuotaEntity(None, name), values)
        else:
            user, _, client = name.partition("/clients/")
            self._quotas.set(QuotaEntity(user, client or None), values)

    def describe(
        self, components: Sequence[Component], strict: bool
    ) -> Iterator[tuple[Entity, Mapping[str, float]] | None]:
        """The entities that a filter finds, with their quotas. Raises KafkaError.

        For each that it doesn't find there is a None, so that a caller can pause after a number of them.
        """
        wanted = _checked(components)

        def select(found: tuple[Entity, Mapping[str, float]]) -> tuple[Entity, Mapping[str, float]] | None:
            return found if _finds(wanted, strict, found[0]) else None

        return map(select, list(self._found.items()))

    async def alter(
        self, parts: Sequence[tuple[str, str | None]], changes: Sequence[Change], validate_only: bool
    ) -> Outcome:
        """Change an entity's quotas; its other settings stay."""
        try:
            entity = _entity(parts)
            settings = await self._configs.read(*entity)
            _change(settings, changes, _OF_IPS if entity.kind == IPS else _OF_CLIENTS)
            if entity not in self._found and self._weight + entity.weight > self._most:
                self._check_room(settings)
            if not validate_only:
                await self._configs.write(*entity, settings)
                self.apply(*entity, settings)
        except KafkaError as error:
            return Outcome(error.code, error.message)
        except StoreError as error:
            return Outcome(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return Outcome()

    def _check_room(self, settings: Mapping[str, str]) -> None:
        """Raises KafkaError if an entity that has no quotas would get some."""
        if not settings.keys().isdisjoint(_OF_CLIENTS | _OF_IPS):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"There are quotas for {self._most} users, client ids and addresses, as many as are kept; use"
                " defaults, or remove some.",
            )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


_KINDS: Final = {USER: "user", CLIENT_ID: "client", IP: "ip"}
"""Entity types, and Kafka's names for them in messages."""


def _checked(components: Sequence[Component]) -> dict[str, Component]:
    """The parts of a filter by type. Raises KafkaError."""
    found: dict[str, Component] = {}
    for each in components:
        if not each.kind:
            raise _invalid("Unexpected empty filter component entity type")
        if each.kind not in _KINDS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{each.kind}' not supported")
        if each.kind in found:
            raise _invalid(f"Duplicate {_KINDS[each.kind]} filter component entity type")
        found[each.kind] = each
    if IP in found and len(found) > 1:
        raise _invalid(
            "Invalid entity filter component combination, IP filter component should not be used with user or"
            " clientId filter component."
        )
    return found


def _finds(wanted: Mapping[str, Component], strict: bool, entity: Entity) -> bool:
    if not wanted and not strict:
        return True
    names = dict(entity.parts)
    for kind, each in wanted.items():
        if kind not in names or not (each.any_name or names[kind] == each.name):
            return False
    return not (strict and names.keys() - wanted.keys())


def _entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """Raises KafkaError."""
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind not in _KINDS:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT_ENTITY if name is None else sanitize(name)
    if IP in names:
        if len(names) > 1:
            raise _invalid(
                "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
            )
        _check_ip(names[IP])
        return Entity(IPS, names[IP])
    if USER not in names:
        return Entity(CLIENTS, names[CLIENT_ID])
    if CLIENT_ID in names:
        return Entity(USERS, f"{names[USER]}/clients/{names[CLIENT_ID]}")
    return Entity(USERS, names[USER])


def _check_ip(name: str) -> None:
    if name != DEFAULT_ENTITY:
        try:
            ip_address(desanitize(name))
        except ValueError:
            raise _invalid(f"{name} is not a valid IP or resolvable host.") from None


def _change(settings: dict[str, str], changes: Sequence[Change], known: frozenset[str]) -> None:
    """Raises KafkaError."""
    for key, value in changes:
        if value is None:
            settings.pop(key, None)
            continue
        if key not in known:
            raise _invalid(f"Invalid configuration key {key}")
        if not isfinite(value):
            raise _invalid(f"Configuration {key} must be a number")
        if key not in _WHOLE:
            settings[key] = repr(float(value))
            continue
        number = int(value + _EPSILON) if abs(value) < 2**63 else None
        if number is None or abs(number - value) > _EPSILON or (key == CONNECTION_RATE and number >= 2**31):
            raise _invalid(
                f"Configuration {key} must be a {'INT' if key == CONNECTION_RATE else 'LONG'} value"
            )
        settings[key] = str(number)
