"""``kill -9`` while partitions move between data folders under load."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.clients.kits import ConfluentKit
from tests.crash.load import Load, check
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.wire import Wire

from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

TOPIC = "moved"


def alter(broker: BrokerProcess, folder: Path) -> None:
    topics = [AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(folder), topics=topics)])
    with Wire(broker.port) as wire:
        answer = wire.call(request, 2)
    assert [part.error_code for each in answer.results for part in each.partitions] == [0]


def test_moves_lose_nothing(
    own_broker: Callable[..., BrokerProcess], rounds: int, chance: random.Random, tmp_path: Path
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    settings = {"log.dirs": ",".join(map(str, folders)), "log.flush.interval.messages": 100}
    broker = own_broker(settings=settings)
    create_topic(broker, TOPIC, 1, segment_bytes=50_000, file_delete_delay_ms=1000)
    loads = [Load(broker.bootstrap, TOPIC, 1, kind, kind == "idempotent") for kind in ("idempotent", "plain")]
    for _ in range(rounds):
        time.sleep(chance.uniform(0.1, 0.3))
        for folder in chance.sample(folders, 2):
            alter(broker, folder)
            time.sleep(chance.uniform(0, 0.1))
        broker.kill()
        assert sum((folder / f"{TOPIC}-0").exists() for folder in folders) <= 1
        broker.start()
        assert sum((folder / f"{TOPIC}-0").exists() for folder in folders) == 1
    for load in loads:
        load.stop()
    acknowledged = {one.offset for load in loads for one in load.acked}

    def enough(seen: list[object]) -> bool:
        return bool(seen) and seen[-1].offset >= max(acknowledged)  # type: ignore[attr-defined]

    check(loads, ConfluentKit().read(broker, TOPIC, enough, partitions=[0], offset=0))
    assert broker.stop() == 0
