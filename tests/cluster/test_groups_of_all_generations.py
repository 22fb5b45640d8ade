"""A group with consumers in ZooKeeper, or at the coordinator of 2012, is never shown as empty, nor deleted.

Its offsets are those that its consumers use, in every command and in the console's view.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Callable
from typing import Any

import pytest
from harness.ports import free_port
from tests.cli.ottla_command import OTTLA, Ottla
from tests.support.cluster import Cluster

from ottla_client import (
    Admin,
    CoordinatedConsumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    ZookeeperConsumer,
)
from ottla_client.errors import GroupError
from ottla_console.watch import ClusterWatch
from ottla_protocol.errors import ErrorCode

T0 = TopicPartition("t", 0)


class Command(Ottla):
    """In a process of its own: the test's consumers go on meanwhile."""

    async def ran(self, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            OTTLA, *arguments, env=self.environment, stdout=PIPE, stderr=PIPE
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def found(self, *arguments: str) -> Any:
        code, out, err = await self.ran(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)


async def lag_of(ottla: Command, group: str, zookeeper: str | None) -> tuple[Any, ...]:
    """What ``groups list``, ``describe`` and ``lag`` and the doctor say: generation, state, members, lag."""
    more = [] if zookeeper is None else ["--zookeeper", zookeeper]
    (row,) = await ottla.found("groups", "list", group, *more)
    described = await ottla.found("groups", "describe", group, *more)
    (lag,) = await ottla.found("groups", "lag", group, "--once", *more)
    assert (described["state"], len(described["members"])) == (row["state"], row["members"])
    assert described["lag_records"] == lag["lag_records"]
    _, out, _ = await ottla.ran("cluster", "doctor", "--group", group, "--interval", "0", "--json", *more)
    assert "group-without-members" not in {each["check"] for each in json.loads(out)["findings"]}
    return row["generation"], row["state"], row["members"], lag["lag_records"]


async def refused(ottla: Command, group: str, where: str) -> None:
    for command in (
        ("delete", group, "--yes"),
        ("reset-offsets", group, "--topic", "t", "--to-earliest", "--execute"),
    ):
        code, _, said = await ottla.ran("groups", *command)
        assert code == 1
        assert f"group {group} has 1 member{where}: stop its consumers" in said
        assert said.count("\n") == 1


async def look(cluster: Cluster, group: str) -> tuple[str, str, int]:
    """What the console shows: the protocol type, the state, and the lag."""
    async with Admin(cluster.bootstrap) as admin:
        watch = ClusterWatch(admin, 1.0)
        try:
            listed = (await watch.groups.get())[group]
            from ottla_cli.groups.places import kept

            lags = (await watch.lags_of({group: kept(listed)}))[group]
            assert not isinstance(lags, Exception)
            return listed.protocol_type, listed.state, sum(each.records or 0 for each in lags.values())
        finally:
            await watch.close()


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
async def test_a_group_in_zookeeper_that_has_offsets_in_kafka_too(
    new_cluster: Callable[..., Cluster], storage: Any
) -> None:
    """Midway through the migration, or after it was taken back: the other place has old offsets."""
    cluster = new_cluster(brokers=2, settings={"offsets.topic.replication.factor": 1})
    ottla = Command(cluster.bootstrap)
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topics([NewTopic("t", 1, 1)])
        for number in range(10):
            await producer.send_and_wait("t", b"%d" % number)
    async with Admin(cluster.bootstrap) as admin:
        if storage == "zookeeper":
            await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(3)})
        else:
            await admin.alter_zookeeper_offsets("g", {T0: 3})
        async with ZookeeperConsumer(
            "t",
            zookeeper_connect=cluster.connect,
            group_id="g",
            auto_offset_reset="smallest",
            offsets_storage=storage,
            zookeeper_session_timeout_ms=20_000,
        ) as consumer:
            for _ in range(10 if storage == "zookeeper" else 8):
                await consumer.getone()
            await consumer.commit()
            left = 0 if storage == "zookeeper" else 2
            for zookeeper in (None, cluster.connect):
                said = await lag_of(ottla, "g", zookeeper)
                assert said == ("zookeeper", "Stable", 1, left)
            assert await look(cluster, "g") == ("zookeeper", "Stable", left)
            await refused(ottla, "g", " in ZooKeeper")
            assert not await ottla.found(
                "groups", "list", "g", "--state", "Empty", "--zookeeper", cluster.connect
            )
            with pytest.raises(GroupError) as caught:
                await admin.delete_groups(["g"])
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
            # Another member comes: the group is not taken for one of another generation.
            async with ZookeeperConsumer(
                "t", zookeeper_connect=cluster.connect, group_id="g", zookeeper_session_timeout_ms=20_000
            ):
                assert (await admin.describe_groups(["g"]))["g"].protocol_type == "zookeeper"
        described = (await admin.describe_groups(["g"]))["g"]
        assert (described.state, described.members) == ("Empty", ())
        await admin.delete_groups(["g"])


async def test_a_group_of_the_coordinator_of_2012_that_has_offsets_in_kafka_too(
    new_cluster: Callable[..., Cluster],
) -> None:
    ports: list[int] = []

    def listeners(_: int) -> dict[str, object]:
        ports.append(free_port())
        return {"coordinator.listener": ports[-1]}

    cluster = new_cluster(brokers=2, listeners=listeners, settings={"offsets.topic.replication.factor": 1})
    ottla = Command(cluster.bootstrap)
    groups = [f"g{number}" for number in range(4)]  # some of them hash to the other broker
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topics([NewTopic("t", 1, 1)])
        for number in range(10):
            await producer.send_and_wait("t", b"%d" % number)
        for group in groups:
            await admin.alter_group_offsets(group, {T0: OffsetAndMetadata(3)})
            async with CoordinatedConsumer(
                "t",
                coordinator_servers=[f"127.0.0.1:{port}" for port in ports],
                group_id=group,
                auto_offset_reset="smallest",
                session_timeout_ms=20_000,
            ) as consumer:
                for _ in range(10):
                    await consumer.getone()
                await consumer.commit()
                said = await lag_of(ottla, group, None)
                assert said == ("coordinated", "Stable", 1, 0)
                await refused(ottla, group, " at the coordinator of 2012")
                with pytest.raises(GroupError) as caught:
                    await admin.delete_groups([group])
                assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
                assert await look(cluster, group) == ("coordinated", "Stable", 0)
