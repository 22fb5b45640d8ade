"""DescribeConfigs: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class DescribeConfigsResource(Struct):
    """Part of DescribeConfigs."""

    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    configuration_keys: list[String] | None = field(default_factory=list)


class DescribeConfigsRequest(Message, key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    """Part of DescribeConfigs."""

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


class DescribeConfigsSynonym(Struct):
    """Part of DescribeConfigs."""

    name: String = field("1+", default="")
    value: String | None = field("1+", default="")
    source: Int8 = field("1+", default=0)


class DescribeConfigsResourceResult(Struct):
    """Part of DescribeConfigs."""

    name: String = field(default="")
    value: String | None = field(default="")
    read_only: Bool = field(default=False)
    is_default: Bool = field("0", default=False)
    config_source: Int8 = field("1+", default=-1, ignorable=True)
    is_sensitive: Bool = field(default=False)
    synonyms: list[DescribeConfigsSynonym] = field("1+", default_factory=list, ignorable=True)
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: String | None = field("3+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    """Part of DescribeConfigs."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


class DescribeConfigsResponse(Message, key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    """Part of DescribeConfigs."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult] = field(default_factory=list)
