"""DescribeConfigs, key 32: configurations with their defaults and sources.

Version 1 has sources and synonyms (KIP-226), 3 types and documentation (KIP-569), 4 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class DescribeConfigsResource(Struct):
    """A topic (type 2), broker (4) or broker logger (8), and keys of it; null is all of them."""

    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    configuration_keys: list[String] | None = field(default_factory=list)


class DescribeConfigsRequest(Message, key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


class DescribeConfigsSynonym(Struct):
    """A possible source of the value; the strongest comes first."""

    name: String = field("1+", default="")
    value: String | None = field("1+", default="")
    source: Int8 = field("1+", default=0)


class DescribeConfigsResourceResult(Struct):
    """A configuration. A sensitive value is null.

    Sources: 1 topic, 2 this broker (dynamic), 3 all brokers (dynamic), 4 the file, 5 the default, 6 broker
    logger.
    Types: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    """

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
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


class DescribeConfigsResponse(Message, key=ApiKey.DESCRIBE_CONFIGS, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult] = field(default_factory=list)
