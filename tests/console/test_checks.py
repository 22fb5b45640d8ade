"""How fast the checks of an open page go on: piece by piece, within what brokers can spare."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from ottla_cli.cluster.state import ClusterState
from ottla_client.admin import ClusterDescription, GroupDescription, GroupListing
from ottla_client.errors import BrokerError
from ottla_console.checks import Checks, TokenBucket
from ottla_protocol.errors import ErrorCode

TOPICS = 200
GROUPS = 100


class FakeAdmin:
    """Counts how many topics, groups and partitions it is asked about."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def describe_configs(self, resources: list[Any], keys: object) -> dict[Any, Any]:
        self.asked["topics"] += len(resources)
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {resources[0].name}")

    async def describe_groups(self, names: list[str]) -> dict[str, Any]:
        self.asked["groups"] += len(names)
        return {name: GroupDescription(name, "Empty", "consumer", "", 1) for name in names}

    async def group_lag(self, name: str) -> dict[Any, Any]:
        return {}

    async def list_offsets(self, specs: dict[Any, Any]) -> dict[Any, Any]:
        self.asked["partitions"] += len(specs)
        return {}

    async def list_transactions(self, **_: object) -> dict[str, Any]:
        return {}

    async def find_hanging_transactions(self, partitions: list[Any]) -> list[Any]:
        return []


def checks_of(admin: FakeAdmin, budget: TokenBucket) -> Checks:
    partition = SimpleNamespace(leader=1, replicas=(1,), isr=(1,))
    topics: dict[str, Any] = {
        f"t{number}": SimpleNamespace(partitions={0: partition}) for number in range(TOPICS)
    }
    state = ClusterState(ClusterDescription("id", 1, ()), topics, {}, {}, {})
    groups = {
        f"g{number}": GroupListing(f"g{number}", "consumer", "Empty", "classic", 1)
        for number in range(GROUPS)
    }

    async def state_now() -> ClusterState:
        return state

    async def groups_now() -> dict[str, GroupListing]:
        return groups

    return Checks(admin, state_now, groups_now, GROUPS, lambda name, lags: None, budget)  # type: ignore[arg-type]


async def advanced(checks: Checks) -> None:
    checks.advance()
    assert checks._task is not None
    await checks._task


async def test_a_large_cluster_is_checked_within_a_budget() -> None:
    admin = FakeAdmin()
    checks = checks_of(admin, TokenBucket(share=0.0, burst=0.03))
    await advanced(checks)
    assert 0 < admin.asked["topics"] < TOPICS
    assert 0 < admin.asked["groups"] < GROUPS
    assert not checks.complete
    assert 0 < checks.share < 1
    assert checks.seen is not None
    assert checks.seen.groups
    before = dict(admin.asked)
    await advanced(checks)
    assert dict(admin.asked) == before  # nothing is left to spend


async def test_everything_is_checked_once_and_a_failure_is_noted_once() -> None:
    admin = FakeAdmin()
    checks = checks_of(admin, TokenBucket(share=0.0, burst=100.0))
    await advanced(checks)
    await advanced(checks)  # The next round is not yet due.
    assert (checks.complete, checks.share) == (True, 1.0)
    assert dict(admin.asked) == {"topics": TOPICS, "groups": GROUPS, "partitions": TOPICS}
    assert checks.seen is not None
    assert [each.partition(":")[0] for each in checks.seen.unchecked] == [
        "settings of topics couldn't be checked"
    ]
    checks.forget()
    await advanced(checks)
    assert admin.asked["groups"] == 2 * GROUPS
    await checks.close()


def test_a_bucket_fills_up_to_its_bound_and_waits_for_what_was_overspent() -> None:
    budget = TokenBucket(share=0.01, burst=0.05)
    assert budget.allows(100.0)
    budget.spend(0.25)
    assert not budget.allows(110.0)
    assert not budget.allows(119.0)
    assert budget.allows(121.0)
    assert budget.allows(10_000.0)
    budget.spend(0.06)
    assert not budget.allows(10_000.5)
