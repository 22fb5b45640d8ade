"""Fixtures of the tests of Admin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.client.base.fake import FakeBroker
from tests.support.processes import BrokerProcess

from ottla_client import Admin
from ottla_protocol.api_keys import ApiKey


@pytest.fixture
async def admin(broker: BrokerProcess) -> AsyncIterator[Admin]:
    """An Admin of the shared broker; no task may remain after it is closed."""
    before = asyncio.all_tasks()
    async with Admin(broker.bootstrap, default_api_timeout_ms=20_000) as admin:
        yield admin
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    """A fake broker with all APIs that the client has."""
    broker = FakeBroker()
    broker.versions = dict.fromkeys(
        (
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ),
        (0, 1),
    ) | {
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.METADATA: (0, 12),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.CREATE_TOPICS: (0, 7),
        ApiKey.DELETE_TOPICS: (0, 6),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.FETCH: (4, 17),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 5),
        ApiKey.DELETE_GROUPS: (0, 2),
        ApiKey.LEAVE_GROUP: (0, 5),
    }
    async with broker:
        yield broker


@pytest.fixture
async def fake_admin(fake: FakeBroker) -> AsyncIterator[Admin]:
    """An Admin of the fake broker, with short back-offs and a short deadline."""
    async with Admin(
        fake.bootstrap, default_api_timeout_ms=2_000, retry_backoff_ms=5, retry_backoff_max_ms=20
    ) as admin:
        yield admin
