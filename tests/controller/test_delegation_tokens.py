"""How many delegation tokens there may be, and what a login by one takes."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.clock import FakeClock

from ottla_broker.controller.delegation_tokens import MOST_HASHED, DelegationTokens, Lifetimes
from ottla_broker.store.embedded import EmbeddedStore
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.sasl.mechanism import SCRAM_SHA_512, Deferred


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


async def test_an_unknown_token_takes_the_work_of_a_known_one(store: EmbeddedStore) -> None:
    """So that a stranger can't measure which tokens there are: hashing at the first login, later none."""
    lifetimes = Lifetimes(longest=1000, renewal=1000, check=1000)
    tokens = DelegationTokens(
        store, "secret", lifetimes, FakeClock(), Random(1), notifies=False, removes=lambda: False
    )
    await tokens.load()
    known = (await tokens.create("User:a", "User:a", [], -1)).token_id
    gone = (await tokens.create("User:a", "User:a", [], -1)).token_id
    await tokens.expire("User:a", tokens.hmac_of(gone), -1)

    for token_id, owner in ((known, "a"), (gone, None), ("unknown", None), ("u" * 16_000, None)):
        with pytest.raises(Deferred) as raised:
            tokens.find(SCRAM_SHA_512, token_id)
        hashed = raised.value.work()
        for found in (raised.value.then(hashed), tokens.find(SCRAM_SHA_512, token_id)):
            assert (found and found.owner) == owner
    for number in range(MOST_HASHED):
        with pytest.raises(Deferred) as raised:
            tokens.find(SCRAM_SHA_512, f"guess-{number}")
        raised.value.then(hashed)
    with pytest.raises(Deferred):
        tokens.find(SCRAM_SHA_512, known)
