"""A consumer of one generation, as a process of its own that may be killed and frozen.

``python reader.py GENERATION NAME GROUP TOPIC PARTITIONS BOOTSTRAP ZOOKEEPER COORDINATORS`` writes each value that it
reads to its standard output, a line each, before the consumer counts the record as processed. It goes on after errors.
Members of share groups write the value, the key, the offset, and when they got it, in ns of the machine's clock.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from ottla_client import (
    Consumer,
    CoordinatedConsumer,
    ShareConsumer,
    SimpleConsumer,
    TopicPartition,
    ZookeeperConsumer,
)
from ottla_client.errors import ClientError
from ottla_client.simple_consumer import Fetched

ORDERED = "keyshare"
"""A share group that is ordered by key."""
SHARES = ("share", ORDERED)
GENERATIONS = ("simple", "zookeeper", "coordinated", "classic", "consumer", *SHARES)
SESSION_MS = 6_000


class Reader:
    def __init__(self, arguments: list[str]) -> None:
        self.generation, self.name, self.group, self.topic = arguments[:4]
        self.partitions = int(arguments[4])
        self.bootstrap, self.zookeeper, coordinators = arguments[5:]
        self.coordinators = coordinators.split(",")

    def note(self, values: list[Any]) -> None:
        if values:
            # One call to the system, which keeps it when this process is killed.
            os.write(sys.stdout.fileno(), b"".join(value + b"\n" for value in values))

    async def run(self) -> None:
        while True:
            try:
                if self.generation == "simple":
                    await self._fetch()
                elif self.generation in SHARES:
                    await self._share()
                else:
                    await self._poll()
            except (ClientError, OSError) as error:
                print(f"{self.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.5)

    def _consumer(self) -> Any:
        reading: dict[str, Any] = {"group_id": self.group, "fetch_max_wait_ms": 100}
        if self.generation == "zookeeper":
            return ZookeeperConsumer(
                self.topic,
                zookeeper_connect=self.zookeeper,
                auto_offset_reset="smallest",
                auto_commit_interval_ms=500,
                zookeeper_session_timeout_ms=SESSION_MS,
                rebalance_backoff_ms=500,
                rebalance_max_retries=20,
                **reading,
            )
        if self.generation == "coordinated":
            return CoordinatedConsumer(
                self.topic,
                coordinator_servers=self.coordinators,
                consumer_id=f"{self.name}-{os.getpid()}",
                auto_offset_reset="smallest",
                session_timeout_ms=SESSION_MS,
                **reading,
            )
        if self.generation == "classic":
            reading["session_timeout_ms"] = SESSION_MS
        return Consumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_protocol="consumer" if self.generation == "consumer" else "classic",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            **reading,
        )

    async def _poll(self) -> None:
        async with self._consumer() as consumer:
            while True:
                self.note([record.value for record in await consumer.poll(500)])

    async def _share(self) -> None:
        """Its group's configs say where it begins, and whether keys are in order."""
        async with ShareConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            max_poll_records=50,
            share_acquire_mode="record_limit",
        ) as consumer:
            while True:
                got = await consumer.poll(500)
                now = time.monotonic_ns()
                self.note(
                    [
                        b"%b %b %d %d" % (each.value or b"-", each.key or b"-", each.offset, now)
                        for each in got
                    ]
                )

    async def _fetch(self) -> None:
        """By hand, with offsets under a group's name."""
        async with SimpleConsumer(self.bootstrap, group_id=self.group) as consumer:
            all_of_them = [TopicPartition(self.topic, number) for number in range(self.partitions)]
            known = await consumer.committed(all_of_them)
            offsets = {each: found.offset if (found := known.get(each)) else 0 for each in all_of_them}
            while True:
                for partition, outcome in (await consumer.fetch_many(offsets, max_wait_ms=100)).items():
                    if isinstance(outcome, Fetched):
                        self.note([record.value for record in outcome.records])
                        offsets[partition] = outcome.next_offset
                await consumer.commit(offsets)


if __name__ == "__main__":
    asyncio.run(Reader(sys.argv[1:]).run())
