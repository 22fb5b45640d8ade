"""A broker's logs and replicas in three data folders, without its network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.log.checkpoints import decode_offsets
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.manager import LogManager
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.partition import Partition

TOPIC_ID = bytes(range(16))
FOLDERS = ("a", "b", "c")
KEEP = LogConfig(file_delete_delay_ms=60_000)


class World:
    """A broker's logs and replicas in three data folders."""

    def __init__(self, root: Path, background: Background, config: LogConfig, files: Files) -> None:
        self.root = root
        self.config = config
        self.files = files
        clock = SystemClock(asyncio.get_running_loop())
        self.logs = LogManager(
            [root / name for name in FOLDERS], config, clock, background, Random(7), files=files
        )
        self.replicas = ReplicaManager(ReplicaEnvironment(1, self.logs, clock))

    async def load(self) -> World:
        await self.logs.load()
        return self

    def lead(self, topic: str = "t", epoch: int = 0) -> Partition:
        return self.replicas.become_leader(topic, 0, TOPIC_ID, epoch, self.config)

    async def alter(self, partition: Partition, name: str) -> None:
        folder = self.logs.folder(str(self.root / name))
        assert folder is not None
        await self.replicas.moves.alter(partition, folder)
        for task in self.replicas.moves._tasks._running:
            # A killed task's error is expected: it need not be logged.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def moved(self) -> None:
        """Wait until no move is under way."""
        async with asyncio.timeout(60):
            while self.replicas.moves._tasks._running:
                await asyncio.sleep(0.002)

    def kill(self) -> None:
        for task in self.replicas.moves._tasks._running:
            task.cancel()
        self.logs.deferred.close()
        for folder in self.logs.folders:
            folder.unlock()
        self.files.close()

    def places(self, suffix: str = "") -> list[str]:
        """The data folders with a folder of ``t-0`` that ends in ``suffix``, or has the plain name."""
        return [
            name
            for name in FOLDERS
            for each in sorted((self.root / name).iterdir())
            if (each.name.startswith("t-0.") and each.name.endswith(suffix) if suffix else each.name == "t-0")
        ]

    def checkpoint(self, folder: str, name: str) -> dict[tuple[str, int], int]:
        path = self.root / folder / name
        return decode_offsets(path.read_bytes(), str(path))
