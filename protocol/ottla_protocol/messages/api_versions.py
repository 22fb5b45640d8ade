"""ApiVersions, key 18: the APIs of a broker; a client's first request.

Version 3 is flexible and names the client (KIP-511), 4 has features whose lowest level is 0 (KIP-1022).
The response's header is never flexible (see ``header``).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class ApiVersionsRequest(Message, key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)


class ApiVersion(Struct):
    """An API, and the first and last version that the broker serves."""

    api_key: Int16 = field(default=0)
    min_version: Int16 = field(default=0)
    max_version: Int16 = field(default=0)


class SupportedFeatureKey(Struct):
    """A feature, and the levels that this broker can run at."""

    name: String = field("3+", default="")
    min_version: Int16 = field("3+", default=0)
    max_version: Int16 = field("3+", default=0)


class FinalizedFeatureKey(Struct):
    """A feature, and the levels that the cluster runs at."""

    name: String = field("3+", default="")
    max_version_level: Int16 = field("3+", default=0)
    min_version_level: Int16 = field("3+", default=0)


class ApiVersionsResponse(Message, key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """The APIs with their versions, and the cluster's features (KIP-584)."""

    error_code: Int16 = field(default=0)
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", default_factory=list, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    """-1 if unknown."""
    finalized_features: list[FinalizedFeatureKey] = field("3+", default_factory=list, tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", default=False, tag=3, ignorable=True)
