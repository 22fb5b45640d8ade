"""The deletion of a share group whose state is deleted only in part, or that gets a member meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.support.clock import FakeClock

from ottla_broker.coordinator.group.share.group import InitializedTopic, ShareGroup, ShareMember
from ottla_broker.coordinator.group.share.groups import ShareGroups
from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_protocol.errors import ErrorCode, KafkaError

TOPIC = bytes(16)
Settled = Callable[[KafkaError | None], None]


class Keeper:
    def __init__(self) -> None:
        self.deleted: list[tuple[ShareKey, Settled]] = []

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        settled(None)

    def delete(self, key: ShareKey, settled: Settled) -> None:
        self.deleted.append((key, settled))


class Log:
    def __init__(self) -> None:
        self.rows = 0

    def write(self, rows: list[object]) -> int:
        self.rows += len(rows)
        return self.rows


@pytest.mark.parametrize("joins", [True, False])
def test_members_of_a_group_that_was_not_deleted_need_new_state(joins: bool) -> None:
    keeper, log, answers = Keeper(), Log(), list[int]()
    groups = ShareGroups(keeper, cast(Any, None), cast(Any, None), lambda: 10, FakeClock())
    group = ShareGroup("g", cast(Any, log))
    group.initialized = {TOPIC: InitializedTopic("t", frozenset({0, 1}))}
    groups.delete(group, answers.append)
    (_, first), (_, second) = keeper.deleted
    first(None)
    if joins:
        group.members["m"] = ShareMember("m")
    second(None if joins else KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert answers == [ErrorCode.NON_EMPTY_GROUP if joins else ErrorCode.COORDINATOR_NOT_AVAILABLE]
    left = {} if joins else {TOPIC: InitializedTopic("t", frozenset({1}))}
    assert group.initialized == left
    assert log.rows == 1
