"""The throttle of moves between data folders, set while the broker runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.badinput.requests import produce, records
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla_protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

pytestmark = pytest.mark.ottla_only

_BROKER = 4
_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"


def limit(wire: Wire, value: str, broker: str = "7") -> ErrorCode:
    change = AlterableConfig(name=_KEY, value=value)
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name=broker, configs=[change])
    answer = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return ErrorCode(answer.responses[0].error_code)


def places(wire: Wire) -> set[tuple[str, bool]]:
    """The last parts of the folders that have the partition, and whether they have a copy."""
    wanted = [DescribableLogDirTopic(topic="t", partitions=[0])]
    answer = wire.call(DescribeLogDirsRequest(topics=wanted), 4)
    return {
        (Path(result.log_dir).name, partition.is_future_key)
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }


def test_a_limit_takes_force_in_a_move_that_has_begun(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    folders = [str(tmp_path / name) for name in ("one", "two")]
    broker = own_broker(settings={"log.dirs": ",".join(folders), "broker.id": 7})
    create_topic(broker, "t", 1)
    with Wire(broker.port) as wire:
        for _ in range(30):
            assert produce(wire, "t", records(b"v" * 100_000))[0] == ErrorCode.NONE
        ((here, _),) = places(wire)
        there = "two" if here == "one" else "one"
        assert limit(wire, "-1") == ErrorCode.INVALID_REQUEST
        # Every broker's default; the broker's own value overrides it.
        assert limit(wire, "1", broker="") == ErrorCode.NONE
        move = AlterReplicaLogDir(
            path=str(tmp_path / there), topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])]
        )
        answer = wire.call(AlterReplicaLogDirsRequest(dirs=[move]), 2)
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
        assert places(wire) == {(here, False), (there, True)}
        assert limit(wire, "1000000000") == ErrorCode.NONE
        wait_for(lambda: places(wire) == {(there, False)}, "the move to end")
