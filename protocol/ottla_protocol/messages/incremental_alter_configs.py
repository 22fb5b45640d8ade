"""IncrementalAlterConfigs: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class AlterableConfig(Struct):
    """Part of IncrementalAlterConfigs."""

    name: String = field(default="")
    config_operation: Int8 = field(default=0)
    value: String | None = field(default="")


class AlterConfigsResource(Struct):
    """Part of IncrementalAlterConfigs."""

    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    configs: list[AlterableConfig] = field(default_factory=list)


class IncrementalAlterConfigsRequest(
    Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """Part of IncrementalAlterConfigs."""

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: Bool = field(default=False)


class AlterConfigsResourceResponse(Struct):
    """Part of IncrementalAlterConfigs."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")


class IncrementalAlterConfigsResponse(
    Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """Part of IncrementalAlterConfigs."""

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
