"""DescribeClientQuotas, key 48: the quotas of users, client ids and addresses (KIP-546).

Version 1 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Float64, Int8, Int16, Int32, Message, String, Struct, field


class ComponentData(Struct):
    """One part of an entity to match. Match type 0 is an exact name, 1 the default entity, 2 any name."""

    entity_type: String = field(default="")
    match_type: Int8 = field(default=0)
    match: String | None = field(default="")


class DescribeClientQuotasRequest(Message, key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """A filter. ``strict`` leaves out entities with other parts than the components."""

    components: list[ComponentData] = field(default_factory=list)
    strict: Bool = field(default=False)


class EntityData(Struct):
    """One part of an entity; a null name is the default entity."""

    entity_type: String = field(default="")
    entity_name: String | None = field(default="")


class ValueData(Struct):
    key: String = field(default="")
    value: Float64 = field(default=0.0)


class EntryData(Struct):
    entity: list[EntityData] = field(default_factory=list)
    values: list[ValueData] = field(default_factory=list)


class DescribeClientQuotasResponse(Message, key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """The matching entities; null with an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    entries: list[EntryData] | None = field(default_factory=list)
