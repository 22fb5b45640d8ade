"""How many delegation tokens there may be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from tests.support.clock import FakeClock

from ottla_broker.background import Background
from ottla_broker.controller.delegation_tokens import DelegationTokens, Lifetimes
from ottla_broker.store.embedded import EmbeddedStore
from ottla_protocol.errors import ErrorCode, KafkaError


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    background = Background(1)
    opened = EmbeddedStore.open([tmp_path], background)
    yield opened
    await opened.close()
    background.close()


async def test_tokens_are_limited(store: EmbeddedStore) -> None:
    lifetimes = Lifetimes(longest=1000, renewal=1000, check=1000)
    tokens = DelegationTokens(
        store, "secret", lifetimes, FakeClock(), Random(1), notifies=False, removes=lambda: False, most=2
    )
    await tokens.load()
    first = await tokens.create("User:a", "User:a", [], -1)
    await tokens.create("User:b", "User:b", [], -1)
    with pytest.raises(KafkaError) as refused:
        await tokens.create("User:a", "User:a", [], -1)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await tokens.expire("User:a", tokens.hmac_of(first.token_id), -1)
    assert await tokens.create("User:a", "User:a", [], -1)
