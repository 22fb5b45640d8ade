"""IncrementalAlterConfigs, key 44: change single configurations (KIP-339).

Version 1 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int32, Message, String, Struct, field
from .alter_configs import AlterConfigsResourceResponse


class AlterableConfig(Struct):
    """A change. Operations: 0 set, 1 delete, 2 append to a list, 3 subtract from a list."""

    name: String = field(default="")
    config_operation: Int8 = field(default=0)
    value: String | None = field(default="")


class AlterConfigsResource(Struct):
    """A topic (type 2), broker (4) or broker logger (8)."""

    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    configs: list[AlterableConfig] = field(default_factory=list)


class IncrementalAlterConfigsRequest(
    Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """Resources, each with its changes."""

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: Bool = field(default=False)


class IncrementalAlterConfigsResponse(
    Message, key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"
):
    """One result per resource."""

    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
