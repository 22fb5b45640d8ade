"""The features of a cluster (KIP-584): what is finalized, by whom, and what clients see."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.handlers import handled
from tests.support.world import World

from ottla_broker.controller.features import SUPPORTED, FeatureAdmin
from ottla_broker.handlers import api_versions, update_features
from ottla_broker.store.api import StoreError
from ottla_broker.store.keys import BadNodeError, BrokerIdNode, BrokerRegistration, FeatureNode
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

NAME = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


async def change(
    world: World, level: int, kind: int = UPGRADE, name: str = NAME, **options: Any
) -> str | None:
    """The refusal, if there is one."""
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    # A feature that is named twice is read once.
    request = UpdateFeaturesRequest(feature_updates=[update, FeatureUpdateKey(feature=name)], **options)
    answer = await world.call(update_features, request, 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    (result,) = answer.results
    assert result.feature == name
    assert result.error_code == (ErrorCode.INVALID_REQUEST if result.error_message else ErrorCode.NONE)
    message: str | None = result.error_message
    return message


async def shown(world: World, version: int = 4) -> tuple[int, dict[str, int], dict[str, tuple[int, int]]]:
    """The epoch, the finalized levels and the supported ones, as a client sees them."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    world_served = world.context(version, 18)
    world_served.services.served = {}
    answer = handled(api_versions, world_served, request)
    answer = type(answer).decode(answer.encode(version), version)
    return (
        answer.finalized_features_epoch,
        {each.name: each.max_version_level for each in answer.finalized_features},
        {each.name: (each.min_version, each.max_version) for each in answer.supported_features},
    )


async def test_a_broker_that_stands_alone_finalizes_what_it_supports(world: World) -> None:
    assert await shown(world) == (0, {NAME: 2}, {NAME: (0, 2)})
    # Clients of version 3 fail on a lowest level of 0 (KIP-1022).
    assert await shown(world, 3) == (0, {NAME: 2}, {})
    data, _ = await world.store.get("/feature")
    assert data == b'{"version":2,"status":1,"features":{"transaction.version":{"max_version_level":2}}}'


async def test_a_feature_is_moved_down_and_up(world: World) -> None:
    assert await change(world, 1, SAFE) is None
    assert await shown(world) == (1, {NAME: 1}, {NAME: (0, 2)})
    assert await change(world, 0, UNSAFE, validate_only=True) is None
    assert (await shown(world))[1] == {NAME: 1}
    assert await change(world, 0, UNSAFE) is None
    assert (await shown(world))[:2] == (2, {})
    again = FeatureAdmin(world.store, world.clock, alone=True)
    await again.load()
    assert again.finalized == (2, {}), "what was taken back stays so"
    assert await change(world, 2) is None
    assert (await shown(world))[:2] == (3, {NAME: 2})


@pytest.mark.parametrize(
    ("name", "level", "kind", "message"),
    [
        ("", 0, UPGRADE, "Feature name can not be empty."),
        ("f", 0, 0, "Received unknown upgrade type."),
        ("f", 0, SAFE, "Can not delete non-existing finalized feature."),
        ("f", -1, UPGRADE, "Can not provide versionLevel: -1 less than 1 without"),
        (
            NAME,
            2,
            UPGRADE,
            "Can not upgrade a finalized feature from existing versionLevel:2 to the same value.",
        ),
        (
            NAME,
            2,
            SAFE,
            "Can not downgrade a finalized feature from existing versionLevel:2 to the same value.",
        ),
        (NAME, 1, UPGRADE, "Can not downgrade finalized feature from existing versionLevel:2 to provided"),
        (
            NAME,
            3,
            SAFE,
            "When the downgradeType is set to SAFE in the request, the provided versionLevel:3 can",
        ),
        (NAME, 3, UPGRADE, "Could not apply finalized feature update because brokers were found to have"),
        (
            "metadata.version",
            21,
            UPGRADE,
            "Could not apply finalized feature update because the provided feature",
        ),
    ],
)
async def test_refused_updates(world: World, name: str, level: int, kind: int, message: str) -> None:
    refusal = await change(world, level, kind, name)
    assert refusal is not None
    assert refusal.startswith(message)
    assert (await shown(world))[:2] == (0, {NAME: 2})


@pytest.mark.parametrize(
    ("features", "allowed"), [({}, False), ({NAME: (0, 1)}, False), ({NAME: (0, 3)}, True)]
)
async def test_all_registered_brokers_must_support_a_level(
    world: World, features: Mapping[str, tuple[int, int]], allowed: bool
) -> None:
    """As a Kafka 3.9 broker, which supports no feature."""
    assert await change(world, 0, UNSAFE) is None
    other = BrokerRegistration("h", 1, [], {}, None, 0, features)
    await world.store.create(BrokerIdNode.path(9), BrokerIdNode.encode(other), ephemeral=True)
    refusal = await change(world, 2)
    assert (refusal is None) is allowed, refusal


async def test_malformed_registrations_are_passed_over(world: World) -> None:
    for name, data in (("x", b""), ("8", b"{"), ("9", b'{"features":7}')):
        await world.store.create(f"{BrokerIdNode.PARENT}/{name}", data, ephemeral=True)
    assert await change(world, 0, UNSAFE) is None
    assert await change(world, 2) is None


async def test_another_broker_s_change_is_followed(world: World) -> None:
    follower = FeatureAdmin(world.store, world.clock, alone=False)
    await follower.load()
    follower.start()
    assert await change(world, 1, SAFE) is None
    async with asyncio.timeout(60):
        while follower.finalized.epoch < 1:
            await asyncio.sleep(0.01)
    assert follower.finalized == (1, {NAME: 1})
    await follower.close()


async def test_a_broker_in_a_cluster_finalizes_nothing(world: World) -> None:
    await world.store.delete(FeatureNode.PATH)
    member = FeatureAdmin(world.store, world.clock, alone=False)
    await member.load()
    assert member.finalized == (0, {})


async def test_features_that_no_cluster_may_have_are_ignored(world: World) -> None:
    """As someone else writes them into the store."""
    for data in (FeatureNode.encode({NAME: 99_999}), FeatureNode.encode({"kraft.version": 1}), b"{}", b"x"):
        await world.store.set(FeatureNode.PATH, data)
        await world.features._read()
        assert await shown(world) == (-1, {}, {NAME: (0, 2)})
    await world.store.set(FeatureNode.PATH, FeatureNode.encode({NAME: 1}))
    await world.features._read()
    assert (await shown(world))[1] == {NAME: 1}


async def test_a_level_that_this_broker_lacks_ends_its_start(world: World) -> None:
    for levels in ({NAME: 3}, {"kraft.version": 1}):
        await world.store.set(FeatureNode.PATH, FeatureNode.encode(levels))
        with pytest.raises(StoreError, match=r"has finalized .* which this broker doesn't support"):
            await world.features.load()


def test_nodes_of_kafka() -> None:
    both = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":2}}}'
    assert FeatureNode.decode(both) == {"f": 2}
    assert FeatureNode.decode(b'{"version":2,"status":0,"features":{"f":{"max_version_level":2}}}') == {}
    with pytest.raises(BadNodeError):
        FeatureNode.decode(b'{"version":2}')
    registration = BrokerRegistration("h", 1, [], {}, None, 0, SUPPORTED)
    data = BrokerIdNode.encode(registration)
    assert b'"features":{"transaction.version":{"min_version":0,"max_version":2}}' in data
    assert BrokerIdNode.decode(1, data).features == SUPPORTED
