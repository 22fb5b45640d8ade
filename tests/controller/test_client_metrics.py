"""The settings of client metrics subscriptions (KIP-714), through a broker's configs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire

from ottla_broker.controller.api import ConfigOperation, ResourceType
from ottla_broker.controller.config_admin import check_client_metrics
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.list_client_metrics_resources import ListClientMetricsResourcesRequest


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"metrics": "a,b", "interval.ms": "100", "match": "client_id=a.*,client_source_port=1"}, None),
        ({"interval": "5"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval.ms": "often"}, ErrorCode.INVALID_CONFIG),
        ({"match": "host=a"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_accepted(settings: dict[str, str], code: ErrorCode | None) -> None:
    if code is None:
        check_client_metrics(settings)
        return
    with pytest.raises(KafkaError) as caught:
        check_client_metrics(settings)
    assert caught.value.code is code


def alter(wire: Wire, name: str, **settings: str | None) -> int:
    """Set these settings, or remove those that are None; returns the error code."""
    configs = [
        AlterableConfig(
            name=key.replace("_", "."),
            config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET,
            value=value,
        )
        for key, value in settings.items()
    ]
    resource = AlterConfigsResource(
        resource_type=ResourceType.CLIENT_METRICS, resource_name=name, configs=configs
    )
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return int(answer.error_code)


def described(wire: Wire, name: str) -> dict[str, tuple[str | None, int]]:
    """Values and sources."""
    resource = DescribeConfigsResource(resource_type=ResourceType.CLIENT_METRICS, resource_name=name)
    (answer,) = wire.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert answer.error_code == 0
    return {config.name: (config.value, config.config_source) for config in answer.configs}


def names(wire: Wire) -> list[str]:
    return [each.name for each in wire.call(ListClientMetricsResourcesRequest(), 0).client_metrics_resources]


@pytest.mark.ottla_only
def test_a_subscription_survives_a_restart(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    with Wire(broker.port) as wire:
        assert alter(wire, "a/b c", metrics="org.a", interval_ms="1000") == 0
        assert alter(wire, "a/b c", metrics="org.a,org.b") == 0
        assert alter(wire, "", metrics="x") == ErrorCode.INVALID_REQUEST
        assert alter(wire, "gone", metrics="x") == 0
        assert alter(wire, "gone", metrics=None) == 0
        assert names(wire) == ["a/b c"]
    broker.stop()
    broker.start()
    with Wire(broker.port) as wire:
        assert names(wire) == ["a/b c"]
        assert described(wire, "a/b c") == {
            "interval.ms": ("1000", 7),
            "match": ("", 5),
            "metrics": ("org.a,org.b", 7),
        }
        assert described(wire, "none")["interval.ms"] == ("300000", 5)
