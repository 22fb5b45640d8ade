"""Admin's arguments: single items in place of lists, numbers as configs, the same topic twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla_client import Admin, ConfigResource, NewTopic
from ottla_client.admin.arguments import config_text
from ottla_client.errors import ConfigurationError

WRONG: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "a name": lambda admin: admin.describe_topics("orders"),
    "a name to delete": lambda admin: admin.delete_topics("orders"),
    "a group": lambda admin: admin.describe_groups("billing"),
    "a group to delete": lambda admin: admin.delete_groups("billing"),
    "a state": lambda admin: admin.list_groups(states="Empty"),
    "a resource": lambda admin: admin.describe_configs(ConfigResource.topic("orders")),  # type: ignore[arg-type]
    "a name for a topic": lambda admin: admin.create_topics(["orders"]),  # type: ignore[list-item]
    "a topic twice": lambda admin: admin.create_topics([NewTopic("a", 1), NewTopic("a", 2)]),
    "a list as config": lambda admin: admin.create_topics([NewTopic("a", configs={"retention.ms": [1]})]),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
async def test_invalid_arguments_are_refused(call: Callable[[Admin], Awaitable[Any]]) -> None:
    with pytest.raises(ConfigurationError):
        await call(Admin())


@pytest.mark.parametrize(
    ("given", "sent"), [("1", "1"), (1, "1"), (0.5, "0.5"), (True, "true"), (False, "false"), (None, None)]
)
def test_configs_are_sent_as_text(given: Any, sent: str | None) -> None:
    assert config_text("x", given) == sent


def test_the_repr_names_the_cluster() -> None:
    assert repr(Admin("kafka-1:9092,kafka-2")) == "<Admin of kafka-1:9092,kafka-2:9092>"


def test_num_partitions_is_another_name() -> None:
    assert NewTopic("t", num_partitions=3) == NewTopic("t", 3) == NewTopic("t", partitions=3)
    assert NewTopic("t").partitions == -1
    with pytest.raises(ConfigurationError, match="same option"):
        NewTopic("t", 3, num_partitions=3)
