"""DescribeCluster, key 60: the brokers and the controller, without any topics (KIP-700).

Version 1 may ask for controllers instead of brokers (KIP-919).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int8, Int16, Int32, Message, String, Struct, field


class DescribeClusterRequest(Message, key=ApiKey.DESCRIBE_CLUSTER, versions="0-1", flexible="0+"):
    """Endpoint types: 1 brokers, 2 controllers."""

    include_cluster_authorized_operations: Bool = field(default=False)
    endpoint_type: Int8 = field("1+", default=1)


class DescribeClusterBroker(Struct):
    """A live broker, and its address for clients."""

    broker_id: Int32 = field(default=0)
    host: String = field(default="")
    port: Int32 = field(default=0)
    rack: String | None = field(default=None)


class DescribeClusterResponse(Message, key=ApiKey.DESCRIBE_CLUSTER, versions="0-1", flexible="0+"):
    """The cluster as this broker knows it."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String = field(default="")
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: Int32 = field(default=-0x8000_0000)
    """One bit per operation; -2^31 if not requested."""
