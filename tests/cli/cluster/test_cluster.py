"""`ottla cluster`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cli.ottla_command import Ottla
from tests.client.admin.records import put
from tests.support.processes import BrokerProcess

from ottla_cli.cluster.state import Problem, problem_of, problems_of
from ottla_client.types import PartitionMetadata, TopicMetadata


@pytest.fixture
def ottla(broker: BrokerProcess) -> Ottla:
    return Ottla(broker.bootstrap)


def test_the_cluster(ottla: Ottla, broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    name = new_topic(3, retention_ms=-1)
    put(broker, name, 0, 1000)
    reported = ottla.json("cluster", "describe")
    assert reported["cluster_id"]
    assert reported["topics"] >= 1
    assert reported["partitions"] >= 3
    assert reported["offline"] == reported["under_replicated"] == 0
    (node,) = reported["brokers"]
    assert node["address"] == broker.bootstrap
    assert node["controller"] is True
    assert node["leads"] == node["replicas"] == reported["partitions"]
    assert node["size"] > 0
    assert [folder["error"] for folder in node["log_dirs"]] == [0]
    assert "apis" not in node
    assert ottla.json("cluster")["cluster_id"] == reported["cluster_id"]
    piped = ottla("cluster")
    assert f"Cluster id  {reported['cluster_id']}" in piped
    assert broker.bootstrap in piped


def test_one_replica_is_enough_though_min_isr_is_two(ottla: Ottla, new_topic: Callable[..., str]) -> None:
    """Brokers count with at most as many as there are replicas, and so writing with acks=all works."""
    name = new_topic(min_insync_replicas=2)
    assert not [each for each in ottla.json("cluster")["problems"] if each["topic"] == name]
    ottla("topics", "delete", name, "--yes")


def test_apis(ottla: Ottla) -> None:
    (node,) = ottla.json("cluster", "--apis")["brokers"]
    first, last = node["apis"]["ListOffsets"]
    assert 0 <= first < last
    code, shown = ottla.at_terminal("cluster", "describe", "--apis", width=80)
    assert code == 0
    assert "ListOffsets" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("leader", "isr", "minimum", "problem"),
    [
        (1, (1, 2, 3), 2, None),
        (1, (1, 2), 2, "under-replicated"),
        (1, (1,), 2, "below-min-isr"),
        (1, (1,), None, "under-replicated"),
        (None, (1,), 1, "offline"),
        (1, (1, 2, 3), 4, None),
        (1, (1, 2), 4, "below-min-isr"),
    ],
)
def test_unhealthy_partitions(
    leader: int | None, isr: tuple[int, ...], minimum: int | None, problem: str | None
) -> None:
    partition = PartitionMetadata(0, leader, 0, (1, 2, 3), isr)
    assert problem_of(partition, minimum) == problem
    topics = {"t": TopicMetadata("t", None, {0: partition})}
    minimums = {} if minimum is None else {"t": minimum}
    reported = [Problem("t", 0, problem, leader, (1, 2, 3), isr, minimum)] if problem else []
    assert list(problems_of(topics, minimums)) == reported


def test_help(ottla: Ottla) -> None:
    assert "ottla cluster" in ottla("cluster", "--help")
    assert "offline" in ottla("cluster", "describe", "--help")


@pytest.mark.parametrize("group", ["topics", "groups", "configs", "cluster"])
def test_help_fits_eighty_columns(ottla: Ottla, group: str) -> None:
    texts = [ottla(group, "--help")]
    commands = texts[0].split("Commands:\n")[1].splitlines()
    assert not any(line.endswith("...") for line in commands), "a summary that is cut off"
    texts += [ottla(group, line.split()[0], "--help") for line in commands]
    for text in texts:
        assert max(map(len, text.splitlines())) <= 80
        assert f"  ottla {group}" in text, "an example"
