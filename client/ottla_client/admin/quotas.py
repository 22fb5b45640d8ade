"""Admin's calls for quotas of clients (KIP-546)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ottla_protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from ottla_protocol.messages.alter_client_quotas import EntityData as AlteredEntity
from ottla_protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

from ..deadline import Deadline
from ..errors import ConfigurationError
from ..requests.driver import Node, Outcomes
from ..requests.outcomes import outcome_of
from .base import AdminBase
from .values import ClientQuota

ENTITY_TYPES: Final = ("user", "client-id", "ip")
_EXACT, _DEFAULT, _ANY = 0, 1, 2


class QuotaCalls(AdminBase):
    async def describe_client_quotas(
        self,
        entity: Mapping[str, str | None] | None = None,
        *,
        types: Collection[str] = (),
        strict: bool = False,
        timeout: float | None = None,
    ) -> list[ClientQuota]:
        """The quotas that are set, sorted by entity.

        :param entity: only those of this entity: names by type ("user", "client-id", "ip"), None for the default.
        :param types: only those with entities of these types, whatever their names.
        :param strict: leave out those whose entity has other types as well.
        """
        wanted = _checked(entity or {})
        components = [
            ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
            for kind, name in wanted.items()
        ]
        components += [
            ComponentData(entity_type=kind, match_type=_ANY, match=None)
            for kind in _checked(dict.fromkeys(types))
            if kind not in wanted
        ]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        answer = await self._ask_once("quotas", request, timeout)
        found = [
            ClientQuota(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]
        return sorted(found, key=lambda quota: sorted((k, v or "") for k, v in quota.entity.items()))

    async def alter_client_quotas(
        self,
        entity: Mapping[str, str | None],
        values: Mapping[str, float | None],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set quotas of an entity; None removes one. Others stay.

        :param entity: names by type ("user", "client-id", "ip"); None is the default of that type.
        :param values: for example ``{"producer_byte_rate": 1048576}``.

        Raises BrokerError: INVALID_REQUEST, …
        """
        parts = [AlteredEntity(entity_type=kind, entity_name=name) for kind, name in _checked(entity).items()]
        if not parts:
            raise ConfigurationError("the entity is empty; name a user, a client id or an address")
        changes = [
            OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
            for key, value in values.items()
        ]

        async def ask(node: Node, _: list[str], deadline: Deadline) -> Outcomes[str, None]:
            request = AlterClientQuotasRequest(
                entries=[EntryData(entity=parts, ops=changes)], validate_only=validate_only
            )
            (result,) = (await self._call(node, request, deadline)).entries
            return {"quotas": outcome_of(result.error_code, None, "quotas", result.error_message)}

        await self._ask_each("alter quotas", ["quotas"], self._any_broker(), ask, timeout)


def _checked(entity: Mapping[str, str | None]) -> dict[str, str | None]:
    for kind in entity:
        if kind not in ENTITY_TYPES:
            raise ConfigurationError(
                f"{kind!r} is not a type of entity; these are: {', '.join(ENTITY_TYPES)}"
            )
    return dict(entity)
