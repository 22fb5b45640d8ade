"""How many delegation tokens there may be, and what a login by one takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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


@pytest.fixture
async def limited(store: EmbeddedStore) -> DelegationTokens:
    """Twenty tokens, ten of one owner."""
    lifetimes = Lifetimes(longest=1000, renewal=1000, check=1000)
    tokens = DelegationTokens(
        store,
        "secret",
        lifetimes,
        FakeClock(),
        Random(1),
        notifies=False,
        removes=lambda: False,
        most=20,
        most_of_owner=10,
    )
    await tokens.load()
    return tokens


async def refused(tokens: DelegationTokens, owner: str, renewers: Sequence[str] = ()) -> bool:
    try:
        await tokens.create(owner, owner, renewers, -1)
    except KafkaError as error:
        return error.code is ErrorCode.POLICY_VIOLATION
    return False


async def test_one_owner_cannot_take_all_places(limited: DelegationTokens) -> None:
    made = await asyncio.gather(*(refused(limited, "User:a") for _ in range(12)))
    assert made.count(False) == 10
    assert not await refused(limited, "User:b")
    first = next(iter(limited.tokens()))
    assert await limited.renew("User:a", limited.hmac_of(first.token_id), -1)
    assert await refused(limited, "User:a"), "renewed, it is still one"
    await limited.expire("User:a", limited.hmac_of(first.token_id), -1)
    await limited.load()
    assert not await refused(limited, "User:a")


async def test_bytes_of_tokens_are_limited(limited: DelegationTokens) -> None:
    assert await refused(limited, "User:a", [f"User:{number}" for number in range(33)])
    assert await refused(limited, "User:a", [f"User:{number:0300}" for number in range(32)])
    assert not await refused(limited, "User:a", [f"User:{number}" for number in range(32)])
    large = [f"User:{number:0100}" for number in range(25)]
    made = [await refused(limited, "User:b", large) for _ in range(3)]
    assert made == [False, False, True]
    assert not await refused(limited, "User:b"), "a small one"
    made = [await refused(limited, f"User:{number}", large) for number in range(4)]
    assert made == [False, False, True, True]
