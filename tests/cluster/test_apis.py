"""A broker of a cluster answers every API version that it advertises, on the controller and elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cluster import Cluster
from tests.support.wire import Wire

from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.produce import ProduceRequest
from ottla_protocol.registry import ApiKey, request_class


def test_every_version_is_answered(new_cluster: Callable[..., Cluster]) -> None:
    """Empty requests: the response is an error or empty, in the requested version."""
    cluster = new_cluster(brokers=2)
    for broker in cluster.brokers.values():
        with Wire(broker.port) as connection:
            served = connection.call(ApiVersionsRequest(), 0).api_keys
            assert ApiKey.LEADER_AND_ISR in {api.api_key for api in served}
            for api in served:
                for version in range(api.min_version, api.max_version + 1):
                    request = request_class(api.api_key, version)()
                    if isinstance(request, ProduceRequest):
                        request.acks = 1  # without it there is no response
                    connection.call(request, version)
