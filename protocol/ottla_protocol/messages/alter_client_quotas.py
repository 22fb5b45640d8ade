"""AlterClientQuotas, key 49: set and remove quotas of users, client ids and addresses (KIP-546).

Version 1 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Float64, Int16, Int32, Message, String, Struct, field


class EntityData(Struct):
    """One part of an entity; a null name is the default entity."""

    entity_type: String = field(default="")
    entity_name: String | None = field(default="")


class OpData(Struct):
    """Set a quota to a value, or remove it."""

    key: String = field(default="")
    value: Float64 = field(default=0.0)
    remove: Bool = field(default=False)


class EntryData(Struct):
    entity: list[EntityData] = field(default_factory=list)
    ops: list[OpData] = field(default_factory=list)


class AlterClientQuotasRequest(Message, key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    entries: list[EntryData] = field(default_factory=list)
    validate_only: Bool = field(default=False)


class EntryResult(Struct):
    """The result for one entity."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    entity: list[EntityData] = field(default_factory=list)


class AlterClientQuotasResponse(Message, key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = field(default=0)
    entries: list[EntryResult] = field(default_factory=list)
