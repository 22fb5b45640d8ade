"""Fixtures of the share consumer's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.base.conftest import client_tasks
from tests.client.consumer.conftest import QUICK as OF_CONSUMERS

from ottla_client import Admin, AlterConfig, ConfigResource, ShareConsumer
from ottla_client.admin import ResourceType

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

QUICK = {name: value for name, value in OF_CONSUMERS.items() if name != "auto_offset_reset"}


@pytest.fixture
def new_group(broker: BrokerProcess, new_name: Callable[..., str]) -> Callable[..., Any]:
    """Names a share group that begins at the earliest record; with configs of its own."""

    async def make(**configs: str) -> str:
        group = new_name("share")
        wanted = {"share.auto.offset.reset": "earliest"} | {
            name.replace("_", "."): value for name, value in configs.items()
        }
        async with Admin(broker.bootstrap) as admin:
            changes = [AlterConfig(name, value) for name, value in wanted.items()]
            await admin.alter_configs({ConfigResource(ResourceType.GROUP, group): changes})
        return group

    return make


@pytest.fixture
async def new_consumer(broker: BrokerProcess) -> AsyncIterator[Callable[..., Any]]:
    """Makes and starts share consumers; all are closed at the end, and no task may be left then."""
    made: list[ShareConsumer] = []

    async def make(*topics: str, **options: Any) -> ShareConsumer:
        consumer = ShareConsumer(*topics, **{"bootstrap_servers": broker.bootstrap, **QUICK, **options})
        made.append(consumer)
        await consumer.start()
        return consumer

    yield make
    for consumer in made:
        await consumer.close()
    assert not client_tasks()
