"""AlterConfigs, key 33: replace a resource's whole configuration.

It forgets what is not named; IncrementalAlterConfigs is the younger way. Version 2 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class AlterableConfig(Struct):
    """A configuration to set; null is its default."""

    name: String = field(default="")
    value: String | None = field(default="")


class AlterConfigsResource(Struct):
    """A topic (type 2) or broker (4)."""

    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    configs: list[AlterableConfig] = field(default_factory=list)


class AlterConfigsRequest(Message, key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: Bool = field(default=False)


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")


class AlterConfigsResponse(Message, key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
