"""What each API needs to be allowed, and what it answers when it isn't."""

from __future__ import annotations

from importlib import import_module

import pytest
from tests.support.handlers import Client

from ottla_broker.handlers import served_apis
from ottla_broker.handlers.authorization import (
    CLUSTER_NAME,
    GATES,
    RULES,
    AclOperation,
    AclResource,
    Authorizer,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.registry import request_class, response_class

EVERY = served_apis(in_cluster=True, log_dirs=1)


@pytest.mark.parametrize("key", [ApiKey(key) for key in EVERY], ids=lambda key: key.name)
def test_each_api_has_a_rule_and_a_handler(key: ApiKey) -> None:
    assert key in RULES
    assert callable(import_module(f"ottla_broker.handlers.{EVERY[key].module}").handle)


def test_nothing_has_a_rule_that_is_not_served() -> None:
    assert RULES.keys() == EVERY.keys()


@pytest.mark.parametrize("key", [ApiKey(key) for key in GATES], ids=lambda key: key.name)
def test_a_gate_names_what_the_rule_does_and_the_answer_has_an_error(key: ApiKey) -> None:
    gate = GATES[key]
    assert gate.resource in RULES[key]
    for version in range(EVERY[key].min_version, EVERY[key].max_version + 1):
        if gate.name_field is not None:
            assert hasattr(request_class(key, version)(), gate.name_field)
        response = response_class(key)()
        response.error_code = 29
        assert response.encode(version)


def test_only_the_brokers_listener_has_brokers() -> None:
    authorizer = Authorizer("INTERNAL")

    def may(operation: AclOperation, listener: str) -> bool:
        return authorizer.authorize(Client(listener=listener), operation, AclResource.CLUSTER, CLUSTER_NAME)

    assert may(AclOperation.CLUSTER_ACTION, "INTERNAL")
    assert not may(AclOperation.CLUSTER_ACTION, "EXTERNAL")
    assert may(AclOperation.ALTER, "EXTERNAL")
    alone = Authorizer(None)
    assert not alone.authorize(
        Client(listener="PLAINTEXT"), AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME
    )
